#!/usr/bin/env bash
# Compiles CUDA sources for every architecture of the toolkit and writes a C file that holds
# them: embed_kernels.sh NVCC FILE.cu... > OUT.c
set -euo pipefail
nvcc=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

printf '#include "vmm/embedded_kernels.h"\n\n'
entries=
for file in "$@"; do
  name=${file##*/}
  name=${name%.cu}
  "$nvcc" -fatbin -arch=all-major -O3 -Werror all-warnings -I. -o "$scratch/$name.fatbin" "$file" >&2
  printf '_Alignas(8) static const unsigned char %s_image[] = {\n' "$name"
  od -An -v -tu1 -w32 -- "$scratch/$name.fatbin" | sed -e 's/  *\([0-9][0-9]*\)/\1,/g'
  printf '};\n\n'
  entries+="    {\"$name\", ${name}_image, sizeof ${name}_image},"$'\n'
done
printf 'const vmm_embedded_kernel vmm_embedded_kernels[] = {\n%s    {0, 0, 0},\n};\n' "$entries"
