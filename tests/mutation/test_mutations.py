# SPDX-License-Identifier: MIT
# timeout: 600
"""Proves that the tests of numbers can fail: plants one mistake after the other into a copy of the tree and expects the named test to fail.

The mistakes stand in mutations.txt, never in the code. The copy keeps the built objects, so each mistake costs one file and one link.
"""
import os, pathlib, re, shutil, subprocess, sys, tempfile

top = pathlib.Path.cwd()
build = os.environ.get("BUILD", "build/release")


def run(command, folder, seconds):
    try:
        return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired as expired:
        return subprocess.CompletedProcess(command, 124, expired.stdout or b"", None)


def main():
    rows = [line.split("\t") for line in (top / "tests/mutation/mutations.txt").read_text().splitlines() if line and line[0] != "#"]
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tree"
        shutil.copytree(top, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", "outputs", "peers", "address", "thread", "undefined", "fuzz"))
        for name, file, old, new, test in rows:
            path = copy / file
            text = path.read_text()
            found = list(re.finditer(r"\s+".join(map(re.escape, old.split())), text))  # however the lines are broken
            if len(found) != 1:
                survivors.append(f"{name}: {file} holds its text {len(found)} times, not once: mutations.txt is stale")
                continue
            path.write_text(text[:found[0].start()] + new + text[found[0].end():])
            program = f"{build}/{test}"
            made = run(["make", "-s", "-j2", program], copy, 200)
            if made.returncode:
                survivors.append(f"{name}: does not build:\n{made.stdout.decode(errors='replace')[-600:]}")
            elif run([program], copy, 60).returncode == 0:
                survivors.append(f"{name}: {test} passes with the mistake in {file}")
            else:
                print(f"{name}: {test} turns red")
            path.write_text(text)
            os.utime(path)
    for line in survivors:
        print("SURVIVED", line)
    return 1 if survivors else 0


sys.exit(main())
