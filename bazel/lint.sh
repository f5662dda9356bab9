#!/usr/bin/env bash
# Formatting and static analysis of the sources: lint.sh [FILE...]
set -euo pipefail
cd -- "${BUILD_WORKSPACE_DIRECTORY:-$(dirname -- "$(readlink -f -- "$0")")/..}"
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(find vmm pools policies workloads harness tests -name '*.[ch]' | sort)
fi
status=0
# The trees of <bsd/sys/tree.h> are macros that define functions and loops. A definition cannot have a semicolon here.
trees=('-DRB_PROTOTYPE(name,type,field,compare)=' '-DRB_GENERATE(name,type,field,compare)='
  '-DRB_FOREACH(x,name,head)=while ((x = RB_ROOT(head)) != NULL)')
clang-format --dry-run -Werror "${files[@]}" || status=1
cppcheck --quiet --std=c11 --language=c --library=bsd --enable=warning,performance,portability \
  --inline-suppr --suppress=missingIncludeSystem -I . "${trees[@]}" -j "$(nproc)" \
  --error-exitcode=1 "${files[@]}" || status=1
[ "$status" -ne 0 ] || echo "lint: ${#files[@]} files, no findings"
exit "$status"
