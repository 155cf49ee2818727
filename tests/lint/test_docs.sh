#!/bin/bash
# SPDX-License-Identifier: MIT
# The generated pages of docs/ are what the tables say.
exec tools/gen_docs --check
