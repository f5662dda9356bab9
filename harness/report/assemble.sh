#!/usr/bin/env bash
# Puts the page together: assemble.sh PAGE.html FILE... > OUT.html
#
# A line "@include NAME" of PAGE.html becomes the FILE of that name, "@include-text NAME" the same as text of HTML.
set -euo pipefail
page=$1
shift

# The FILE whose last part is a name.
path_of() {
  local name=$1 file
  shift
  for file in "$@"; do
    if [ "${file##*/}" = "$name" ]; then
      printf '%s' "$file"
      return
    fi
  done
  printf 'assemble.sh: no file is called %s\n' "$name" >&2
  exit 1
}

while IFS= read -r line || [ -n "$line" ]; do
  case $line in
    '@include '*)
      file=$(path_of "${line#@include }" "$@")
      # Such an end tag would end the script or style; a source map is another file.
      ! grep -qiE '</(script|style)' -- "$file" || { printf '%s has an end tag\n' "$file" >&2; exit 1; }
      sed -e 's|/\*# sourceMappingURL=.*\*/||' -e 's|^//# sourceMappingURL=.*||' -- "$file"
      echo
      ;;
    '@include-text '*)
      file=$(path_of "${line#@include-text }" "$@")
      sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -- "$file"
      ;;
    *) printf '%s\n' "$line" ;;
  esac
done <"$page"
