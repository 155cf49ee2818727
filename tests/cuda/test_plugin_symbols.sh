#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The CUDA plugin exports its table and nothing else, takes from the program only what the program exports, and lets
# LD_LIBRARY_PATH go before the toolkit's folder.
set -eu
plugin=$BUILD/libctitan_cuda.so
if [[ ! -e $plugin ]]; then
    echo "the CUDA plugin is not built here"
    exit 77
fi
exported=$(nm -D --defined-only "$plugin" | awk '{print $3}' | grep -v '^__\(asan\|odr_asan\|ubsan\)' || true)
[[ $exported == ctitan_device_plugin ]] || { echo "exports: $exported"; exit 1; }
missing=$(comm -23 <(nm -D --undefined-only "$plugin" | awk '$1 == "U" {print $2}' | grep -v @ | sort -u) \
                   <(nm -D --defined-only "$BUILD/ctitan" | awk '{print $3}' | sort -u))
missing=$(grep -v '^__\(asan\|ubsan\|tsan\)' <<< "$missing" || true)
[[ -z $missing ]] || { echo "the program lacks: $missing"; exit 1; }
if readelf -d "$plugin" | grep -q '(RPATH)'; then
    echo "the plugin has an RPATH, which goes before LD_LIBRARY_PATH"
    exit 1
fi
