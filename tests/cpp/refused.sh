#!/bin/sh
# refused.sh: each program of refused/ must not compile, and the compiler must say the sentence of its first line.
#
# usage: refused.sh CXX INCLUDE
set -u
here=$(cd "$(dirname "$0")" && pwd)
count=0
bad=0
for program in "$here"/refused/*.cpp; do
    count=$((count + 1))
    name=$(basename "$program" .cpp)
    wanted=$(sed -n '1s|^/\* \(.*\) \*/$|\1|p' "$program")
    said=$("$1" -std=c++17 -fsyntax-only -I"$2" "$program" 2>&1)
    if [ $? -ne 0 ] && printf '%s' "$said" | tr '\n' ' ' | grep -qF "$wanted"; then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name: wanted \"$wanted\""
        printf '%s\n' "$said" | head -n 5 | sed 's/^/# /'
        bad=1
    fi
done
echo "1..$count"
exit $bad
