#!/bin/bash
# SPDX-License-Identifier: MIT
# Each rule of tools/lint finds its planted violation, and nothing in the tree without it.
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/ctitan-lint.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/clean"
cp -r .clang-format ARCHITECTURE.md Makefile src kernels tools "$work/clean/"
failures=0

# Copies the clean tree, runs the plant in it, and wants a finding of RULE with TEXT.
# expect RULE TEXT PLANT...
expect() {
    rm -rf "$work/tree"
    cp -r "$work/clean" "$work/tree"
    (cd "$work/tree" && eval "${*:3}")
    if (cd "$work/tree" && tools/lint "$1" >"$work/out"); then
        echo "rule $1 did not see: ${*:3}"
        failures=$((failures + 1))
    elif ! grep -qF -- "$2" "$work/out"; then
        echo "rule $1 found something else than \"$2\" after: ${*:3}"
        cat "$work/out"
        failures=$((failures + 1))
    fi
}

# a file of C that is in order: FOLDER/NAME, then its lines
file() {
    { echo '/* SPDX-License-Identifier: MIT */'; printf '%s\n' "${@:2}"; } >"$1"
}

expect layers 'an include may only go down' "file src/base/planted.c '#include \"comm/comm.h\"'"
expect layers 'of the same layer' "file src/device/planted.c '#include \"config/config.h\"'"
expect layers 'is in no row' "mkdir src/planted; file src/planted/a.c ''"
expect layers 'is not in src/' "file src/base/planted.c '#include \"base/nowhere.h\"'"
expect layers 'is not used' "sed -i '/^| from | to/{n;s/\$/\n| base | comm | planted |/}' ARCHITECTURE.md"
expect options 'nothing outside src/config reads it' "sed -i 's|^END(job)|INT(planted, 1, 1, 2, MAY_CHANGE, BUILT, \"x\")\n&|' src/config/fields.def"
expect size 'more than 800' "file src/base/planted.c; yes 'int a;' | head -900 >>src/base/planted.c"
expect size 'the function has' "file src/base/planted.c 'void f(void)' '{'; yes '    g();' | head -101 >>src/base/planted.c; echo '}' >>src/base/planted.c"
expect headers 'each header must compile alone' "file src/base/planted.h 'struct planted { size_t n; };'"
expect headers 'redefinition' "file src/base/planted.h 'struct planted { int n; };'"
expect banned 'calls malloc' "file src/base/planted.c 'void *p(void) { return malloc(3); }'"
expect banned 'calls strcpy' "file src/base/planted.c 'void p(char *a) { strcpy(a, a); }'"
expect banned 'calls exit' "file src/base/planted.c 'void p(void) { exit(3); }'"
expect banned 'calls printf' "file src/base/planted.c 'void p(void) { printf(\"\"); }'"
expect banned 'calls strtok' "file src/base/planted.c 'void p(char *a) { strtok(a, a); }'"
expect banned 'calls system' "file src/base/planted.c 'void p(void) { system(\"\"); }'"
expect banned 'a static variable' "file src/base/planted.c 'static int counter;'"
expect text 'SPDX-License-Identifier' "echo 'int a;' >src/base/planted.c"
expect text 'blanks at the end' "file src/base/planted.c 'int a; '"
expect text 'a tab' "file src/base/planted.c \$'\tint a;'"
expect text 'columns' "file src/base/planted.c \"/* \$(printf %0200d 0) */\""
expect text 'no end of line' "file src/base/planted.c; printf 'int a;' >>src/base/planted.c"
expect text 'empty lines' "file src/base/planted.c 'int a;' ''"
if command -v clang-format-14 >/dev/null; then
    expect format 'make format' "file src/base/planted.c 'int  planted ;'"
fi
expect words 'notes to oneself' "file src/base/planted.c '/* TO''DO */'"
expect words 'paths of one machine' "file src/base/planted.c '/* /ho''me/somebody */'"
expect docs 'is stale' "mkdir -p docs build; ln -s '$PWD/$BUILD' build/release; echo old >docs/metrics.md"
if command -v shellcheck >/dev/null; then
    # shellcheck disable=SC2016 # the planted line
    expect shell 'SC2086' 'printf "#!/bin/bash\n# SPDX-License-Identifier: MIT\nrm \$1\n" >tools/planted.sh'
fi

# mentions in comments and literals are no calls, and the tree's own files pass
cd "$work/clean"
file src/base/planted.c '/* malloc(3) and exit(1) */' 'const char *p = "printf(3) strcpy(a)";'
for rule in layers size banned text words; do
    tools/lint "$rule" >"$work/out" || { cat "$work/out"; failures=$((failures + 1)); }
done
((failures == 0))
