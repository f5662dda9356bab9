#include "workloads/pickle_opcodes.h"

#include <stddef.h>

typedef struct opcode_about {
  const char *name;
  pickle_opcode_class class;
} opcode_about;

static const opcode_about opcodes[256] = {
    [PICKLE_MARK] = {"MARK", PICKLE_DATA},
    [PICKLE_EMPTY_TUPLE] = {"EMPTY_TUPLE", PICKLE_DATA},
    [PICKLE_STOP] = {"STOP", PICKLE_DATA},
    [PICKLE_BINBYTES] = {"BINBYTES", PICKLE_DATA},
    [PICKLE_SHORT_BINBYTES] = {"SHORT_BINBYTES", PICKLE_DATA},
    [PICKLE_BINFLOAT] = {"BINFLOAT", PICKLE_DATA},
    [PICKLE_BININT] = {"BININT", PICKLE_DATA},
    [PICKLE_BININT1] = {"BININT1", PICKLE_DATA},
    [PICKLE_BININT2] = {"BININT2", PICKLE_DATA},
    [PICKLE_NONE] = {"NONE", PICKLE_DATA},
    [PICKLE_BINUNICODE] = {"BINUNICODE", PICKLE_DATA},
    [PICKLE_EMPTY_LIST] = {"EMPTY_LIST", PICKLE_DATA},
    [PICKLE_APPEND] = {"APPEND", PICKLE_DATA},
    [PICKLE_APPENDS] = {"APPENDS", PICKLE_DATA},
    [PICKLE_BINGET] = {"BINGET", PICKLE_DATA},
    [PICKLE_LONG_BINGET] = {"LONG_BINGET", PICKLE_DATA},
    [PICKLE_BINPUT] = {"BINPUT", PICKLE_DATA},
    [PICKLE_LONG_BINPUT] = {"LONG_BINPUT", PICKLE_DATA},
    [PICKLE_SETITEM] = {"SETITEM", PICKLE_DATA},
    [PICKLE_TUPLE] = {"TUPLE", PICKLE_DATA},
    [PICKLE_SETITEMS] = {"SETITEMS", PICKLE_DATA},
    [PICKLE_EMPTY_DICT] = {"EMPTY_DICT", PICKLE_DATA},
    [PICKLE_PROTO] = {"PROTO", PICKLE_DATA},
    [PICKLE_TUPLE1] = {"TUPLE1", PICKLE_DATA},
    [PICKLE_TUPLE2] = {"TUPLE2", PICKLE_DATA},
    [PICKLE_TUPLE3] = {"TUPLE3", PICKLE_DATA},
    [PICKLE_NEWTRUE] = {"NEWTRUE", PICKLE_DATA},
    [PICKLE_NEWFALSE] = {"NEWFALSE", PICKLE_DATA},
    [PICKLE_LONG1] = {"LONG1", PICKLE_DATA},
    [PICKLE_SHORT_BINUNICODE] = {"SHORT_BINUNICODE", PICKLE_DATA},
    [PICKLE_BINUNICODE8] = {"BINUNICODE8", PICKLE_DATA},
    [PICKLE_BINBYTES8] = {"BINBYTES8", PICKLE_DATA},
    [PICKLE_MEMOIZE] = {"MEMOIZE", PICKLE_DATA},
    [PICKLE_FRAME] = {"FRAME", PICKLE_DATA},

    ['c'] = {"GLOBAL", PICKLE_CODE},
    [0x93] = {"STACK_GLOBAL", PICKLE_CODE},
    ['R'] = {"REDUCE", PICKLE_CODE},
    ['b'] = {"BUILD", PICKLE_CODE},
    ['i'] = {"INST", PICKLE_CODE},
    ['o'] = {"OBJ", PICKLE_CODE},
    [0x81] = {"NEWOBJ", PICKLE_CODE},
    [0x92] = {"NEWOBJ_EX", PICKLE_CODE},
    ['P'] = {"PERSID", PICKLE_CODE},
    ['Q'] = {"BINPERSID", PICKLE_CODE},
    [0x82] = {"EXT1", PICKLE_CODE},
    [0x83] = {"EXT2", PICKLE_CODE},
    [0x84] = {"EXT4", PICKLE_CODE},
    [0x97] = {"NEXT_BUFFER", PICKLE_CODE},
    [0x98] = {"READONLY_BUFFER", PICKLE_CODE},

    [0x8B] = {"LONG4", PICKLE_TOO_LARGE},

    ['0'] = {"POP", PICKLE_UNUSED},
    ['1'] = {"POP_MARK", PICKLE_UNUSED},
    ['2'] = {"DUP", PICKLE_UNUSED},
    ['F'] = {"FLOAT", PICKLE_UNUSED},
    ['I'] = {"INT", PICKLE_UNUSED},
    ['L'] = {"LONG", PICKLE_UNUSED},
    ['S'] = {"STRING", PICKLE_UNUSED},
    ['T'] = {"BINSTRING", PICKLE_UNUSED},
    ['U'] = {"SHORT_BINSTRING", PICKLE_UNUSED},
    ['V'] = {"UNICODE", PICKLE_UNUSED},
    ['d'] = {"DICT", PICKLE_UNUSED},
    ['g'] = {"GET", PICKLE_UNUSED},
    ['l'] = {"LIST", PICKLE_UNUSED},
    ['p'] = {"PUT", PICKLE_UNUSED},
    [0x8F] = {"EMPTY_SET", PICKLE_UNUSED},
    [0x90] = {"ADDITEMS", PICKLE_UNUSED},
    [0x91] = {"FROZENSET", PICKLE_UNUSED},
    [0x96] = {"BYTEARRAY8", PICKLE_UNUSED},
};

pickle_opcode_class pickle_opcode_class_of(uint8_t opcode) { return opcodes[opcode].class; }

const char *pickle_opcode_name(uint8_t opcode) {
  return opcodes[opcode].name == NULL ? "?" : opcodes[opcode].name;
}
