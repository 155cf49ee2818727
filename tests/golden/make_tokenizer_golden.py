#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/golden/tokenizer/: tokenizer files of several kinds and the ids that the `tokenizers` package gives with them.

Run by hand with a Python that has the package (made with 0.23.3), from the root of the project, after `make`:
    python3 tests/golden/make_tokenizer_golden.py
The text that vocabularies are learned from is made here too, from word lists and a fixed seed, so everything can be made again.
"""
import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

OUT = Path("tests/golden/tokenizer")
VOCAB = 700

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥\\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+""",
]
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

WORDS = {
    "en": "the of and to a in is that it was for on are with as his they be at one have this from or had by hot word but what "
          "some we can out other were all there when up use your how said an each she which do their time if will way about "
          "many then them would write like so these her long make thing see him two has look more day could go come did my "
          "number sound no most people over know water than call first who may down side been now find".split(),
    "zh": "的 一 是 不 了 人 我 在 有 他 这 中 大 来 上 国 个 到 说 们 为 子 和 你 地 出 道 也 时 年 得 就 那 要 下 以 生 会 自 着 "
          "模型 训练 数据 语言 中国 学习 计算机 我们 他们 今天".split(),
    "ru": "и в не на я быть он с что а по это она этот к но они мы весь который из у то за свой человек год время рука".split(),
    "other": "für über straße ça où été niño mañana ελληνικά και שלום مرحبا こんにちは 世界 カタカナ 안녕하세요 สวัสดี नमस्ते "
             "café naïve Ångström İstanbul".split(),
    "code": ["int main(void)\n{\n    return 0;\n}\n", "for (i = 0; i < n; i++)\n        sum += a[i] * b[i];\n", "\tif x != None:\n\t\treturn\n",
             "def f(x, y=1): # add\n    return x + y\n", "x->next = NULL;\n", "{\"key\": [1, 2.5, 300], \"b\": true}\n", "https://example.org/a?b=c&d=1\n"],
    "emoji": "😀 🎉🎉 👩‍👩‍👧‍👦 🇩🇪 ❤️ 👍🏽 ✨".split(),
}


def training_text():
    rng = random.Random(1)
    documents = []
    for i in range(420):
        kind = rng.choice(["en"] * 6 + ["zh"] * 3 + ["ru"] * 2 + ["other", "code", "code", "emoji"])
        words = [rng.choice(WORDS[kind]) for _ in range(rng.randint(3, 25))]
        text = ("" if kind in ("zh", "code") else " ").join(words)
        if rng.random() < 0.3:
            text = text.capitalize() + f", it's {rng.randint(0, 99999)}!\n"
        if rng.random() < 0.1:
            text += "  \n\n   we'll\tsee...\r\n"
        documents.append(text)
    return documents


def trained(pre, documents, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, show_progress=False, min_frequency=2, special_tokens=[],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(documents, trainer)
    t.decoder = decoders.ByteLevel()
    return t


def splits(*patterns):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] + [byte_level])


def save(t, name, edit=None):
    data = json.loads(t.to_str())
    if edit:
        edit(data)
    (OUT / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def make_files(documents):
    t = trained(splits(LLAMA3), documents)
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    t.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A",
                                                     special_tokens=[("<|begin_of_text|>", VOCAB)])
    save(t, "llama3")
    # whole words that no merge leads to, taken at once
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>s"), AddedToken(" pad ", lstrip=True, rstrip=True)])

    def ignore_merges(data):
        data["model"]["ignore_merges"] = True
        merges = data["model"]["merges"]
        gone = [m for m in merges if "".join(m) in ("Ġwater", "Ġpeople", "the", "数据")]
        data["model"]["merges"] = [m for m in merges if m not in gone]

    save(t, "llama3_whole", ignore_merges)
    save(trained(splits(QWEN), documents), "qwen")
    t = trained(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), documents)
    t.add_special_tokens(["<|endoftext|>"])

    def old_merges(data):
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]

    save(t, "gpt2", old_merges)
    t = trained(splits(*DEEPSEEK), documents)
    t.add_special_tokens(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    save(t, "deepseek")
    save(trained(splits(CASED), documents), "cased")
    save(trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]), documents), "digits")
    subprocess.run(["./ctitan", "tokenizer", "train", "--vocab-size", str(VOCAB + 2), "--separator", "%", "--output",
                    str(OUT / "ctitan.json"), str(OUT / "train.txt")], check=True)


def texts():
    rng = random.Random(2)
    named = {
        "empty": "", "english": "The quick brown fox doesn't jump over 12345 lazy dogs; they'LL SLEEP.\n",
        "contractions": "I'M you'Re we've he'd it's'S can't'T ll'll 'sword 'Tis 's't're've'm'll'd 'ſ it'ſ K'K",
        "chinese": "今天我们学习计算机语言模型的训练数据，2026年1月31日。模型　训练（数据）！\n中国人\u3000世界",
        "code": "int main(int argc, char **argv)\r\n{\r\n\tfor (int i = 0; i < 100; ++i) {\n\t\t\tprintf(\"%d\\n\", a[i]);\n\t}\n}\n\n\n",
        "emoji": "👩‍👩‍👧‍👦🇩🇪 ❤️👍🏽😀😀 a😀b ✨\n🎉",
        "white": " a  b   c\td \t e\n f\n\n g \n \n h\r\n\r\n  i\u00a0j\u00a0\u00a0k \u3000l\u3000 \u2003m\u2028n\u2029 \u0085o\u180ep \u180e q\u200b r   ",
        "white_only": "   \n\t\n  \r\n \u00a0 ", "one_space": " ", "newlines": "\n\n\n", "spaces_end": "end   ",
        "spaces_words": "a   b    'tis    1   !", "numbers": "1 12 123 1234 12345678901 ①②½ ٣٤٥ ১২৩ Ⅷ 1,000.50 1e-5 x1y22z333",
        "marks": "e\u0301a\u0308 n\u0303 नमस्ते สวัสดี שָׁלוֹם مُرْحَبًا", "cased": "HelloWORLD camelCase XMLHttpRequest DON'T Ǆ ǅ ǆ ﬁ ﬅ ß ẞ İ ı",
        "specials": "a<|begin_of_text|>b <|end_of_text|> <|eot_id|><|endoftext|><|begin_of<tool>s <tool>x  pad  <s> <|<|end_of_text|>",
        "deepseek_special": "x<｜begin▁of▁sentence｜>y<｜end▁of▁sentence｜>",
        "control": "\x01\x02 \x1c\x1d a\x0bb\x0cc\x7f\ufeffBOM\ufeff \ufffd",
        "nul": "a\x00b \x00\x00 ", "long_word": "abracadabra" * 40, "long_run": "=" * 300 + " " * 130 + "\n" + "a" * 150 + "the" * 50,
        "mixed": "Привет, мир! Über straße naïve café—“quotes”… ελληνικά 안녕하세요 カタカナ", "private": "\ue000\uf8ff\U000f0000 \U0010fffd x",
    }
    alphabet = list("aabstTrRvVeEmMlLdD''''    \t\n\r0123 .,!?-_=<>|{}()") + list("éßſKИ中数かカ한ا٣Ⅷ½①\u0301\u00a0\u3000\u2028\u0085\u180e\u200d😀❤\ufe0f")
    for i in range(60):
        named[f"random_{i}"] = "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 70)))
    return named


def fnv(ids):
    h = 0xcbf29ce484222325
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{h:016x}"


def assigned_ranges():
    ranges = []
    for c in range(0x110000):
        if unicodedata.category(chr(c)) in ("Cn", "Cs"):
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def around(c):
    """The places where a character's class decides."""
    c = chr(c)
    return f"a{c}b {c} {c}1{c}{c}.{c}\n{c}  {c}'{c} \n {c}'s"


def code_points(t, ranges):
    """One hash per 1,024 code points of the ids of all their texts, each encoded for itself."""
    hashes, ids, block = [], [], 0
    for first, last in ranges:
        if first >= 0xF0000:  # private use planes: all alike
            last = first + 8
        for c in range(first, last + 1):
            while c // 1024 != block:
                hashes.append(fnv(ids) if ids else "")
                ids, block = [], block + 1
            ids += t.encode(around(c), add_special_tokens=False).ids
    hashes.append(fnv(ids))
    return hashes


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"this Python knows Unicode {unicodedata.unidata_version}; the promise is about 14.0.0: use Debian 12's Python 3.11")
    OUT.mkdir(parents=True, exist_ok=True)
    documents = training_text()
    (OUT / "train.txt").write_text("\n%\n".join(documents), newline="")
    make_files([d + "\n" for d in documents[:-1]] + documents[-1:])
    ranges = assigned_ranges()
    golden = {"assigned": ranges, "texts": texts(), "tokenizers": {}}
    for path in sorted(OUT.glob("*.json")):
        if path.name == "cases.json":
            continue
        t = Tokenizer.from_file(str(path))
        entry = {"plain": {}, "special": {}}
        for key, parse in (("plain", False), ("special", True)):
            t.encode_special_tokens = not parse
            for name, text in golden["texts"].items():
                ids = t.encode(text, add_special_tokens=False).ids
                if parse and "special" not in name:
                    continue
                entry[key][name] = fnv(ids) if name.startswith("random") else ids
        t.encode_special_tokens = True
        entry["code_points"] = code_points(t, ranges)
        golden["tokenizers"][path.stem] = entry
    (OUT / "cases.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
