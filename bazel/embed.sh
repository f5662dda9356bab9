#!/usr/bin/env bash
# Writes a C file that holds text files: embed.sh HEADER SYMBOL FILE... > OUT.c
set -euo pipefail
header=$1 symbol=$2
shift 2
printf '#include "%s"\n\nconst %s %s[] = {\n' "$header" "${symbol%s}" "$symbol"
for file in "$@"; do
  name=${file##*/}
  name=${name%%.*}
  literal=$(sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/' "$file")
  printf '  {"%s",\n%s,\n   sizeof(\n%s\n   ) - 1},\n' "$name" "${literal:-\"\"}" "${literal:-\"\"}"
done
printf '  {0, 0, 0},\n};\n'
