# x86-64 with musl, by the wrapper of Debian's musl-tools.  It has no C++: the preset leaves out what is written in it.
set(CMAKE_C_COMPILER musl-gcc)
