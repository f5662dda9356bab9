/* The registered policies: XX(name). One line adds one; policies/<name>.c defines
 * const policy_class <name>_policy. */
#define POLICY_LIST(XX) \
  XX(native)            \
  XX(async)             \
  XX(bfc)               \
  XX(expandable)        \
  XX(tfbfc)             \
  XX(rawvmm)            \
  XX(gmlake)            \
  XX(aliasheap)         \
  XX(planned)           \
  XX(null)
