#include "harness/program.h"

int main(int argc, char **argv) { return (int)program_main(argc, argv); }
