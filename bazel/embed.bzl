"""Compiles text files into the program."""

def embed_text(name, srcs, out, header, symbol):
    """Generates a C file with one array of (name, text, size), ended by a NULL name.

    Args:
      name: the rule's name.
      srcs: text files; an entry's name is its file's, up to the first dot.
      out: the C file.
      header: the header that declares the array and its type.
      symbol: the array's name; its type has the same name without the last letter.
    """
    native.genrule(
        name = name,
        srcs = srcs,
        outs = [out],
        cmd = "$(location //bazel:embed.sh) {} {} $(SRCS) > $@".format(header, symbol),
        tools = ["//bazel:embed.sh"],
    )
