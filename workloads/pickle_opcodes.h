/* The opcodes of Python's pickle protocols 0 to 5, by name and by what they may do. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_PICKLE_OPCODES_H
#define LAKEBED_WORKLOADS_PICKLE_OPCODES_H

#include <stdbool.h>
#include <stdint.h>

/* Those that plain data is written with (protocol 2 and later). */
enum {
  PICKLE_MARK = '(',
  PICKLE_EMPTY_TUPLE = ')',
  PICKLE_STOP = '.',
  PICKLE_BINBYTES = 'B',
  PICKLE_SHORT_BINBYTES = 'C',
  PICKLE_BINFLOAT = 'G',
  PICKLE_BININT = 'J',
  PICKLE_BININT1 = 'K',
  PICKLE_BININT2 = 'M',
  PICKLE_NONE = 'N',
  PICKLE_BINUNICODE = 'X',
  PICKLE_EMPTY_LIST = ']',
  PICKLE_APPEND = 'a',
  PICKLE_APPENDS = 'e',
  PICKLE_BINGET = 'h',
  PICKLE_LONG_BINGET = 'j',
  PICKLE_BINPUT = 'q',
  PICKLE_LONG_BINPUT = 'r',
  PICKLE_SETITEM = 's',
  PICKLE_TUPLE = 't',
  PICKLE_SETITEMS = 'u',
  PICKLE_EMPTY_DICT = '}',
  PICKLE_PROTO = 0x80,
  PICKLE_TUPLE1 = 0x85,
  PICKLE_TUPLE2 = 0x86,
  PICKLE_TUPLE3 = 0x87,
  PICKLE_NEWTRUE = 0x88,
  PICKLE_NEWFALSE = 0x89,
  PICKLE_LONG1 = 0x8A,
  PICKLE_SHORT_BINUNICODE = 0x8C,
  PICKLE_BINUNICODE8 = 0x8D,
  PICKLE_BINBYTES8 = 0x8E,
  PICKLE_MEMOIZE = 0x94,
  PICKLE_FRAME = 0x95
};

typedef enum pickle_opcode_class {
  PICKLE_UNKNOWN,   /* no protocol defines it */
  PICKLE_DATA,      /* plain data */
  PICKLE_CODE,      /* imports, calls, or reaches outside of the file */
  PICKLE_TOO_LARGE, /* integers of any size */
  PICKLE_UNUSED     /* harmless, but written by no protocol from 2 on for plain data */
} pickle_opcode_class;

pickle_opcode_class pickle_opcode_class_of(uint8_t opcode);
/* "?" for an unknown one. */
const char *pickle_opcode_name(uint8_t opcode);

#endif
