#!/usr/bin/env bash
# Writes a C file that holds a file's bytes and a zero byte: embed_bytes.sh HEADER SYMBOL FILE > OUT.c
set -euo pipefail
header=$1 symbol=$2 file=$3
printf '#include "%s"\n\nconst unsigned char %s[] = {\n' "$header" "$symbol"
od -An -v -tu1 -w32 -- "$file" | sed -e 's/  *\([0-9][0-9]*\)/\1,/g'
printf '0};\n'
