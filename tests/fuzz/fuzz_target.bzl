"""libFuzzer targets, which also run over their seeds in the ordinary suite."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_test")
load("//bazel:layers.bzl", "LAYERS")

def fuzz_targets():
    """Two targets for every LAYER_SUBJECT_fuzz.c, which defines LLVMFuzzerTestOneInput.

    LAYER_SUBJECT_fuzz is the fuzzer (with --config=fuzz only); LAYER_SUBJECT_corpus_test
    runs it over the files of corpus/LAYER_SUBJECT with an ordinary main. Headers are shared.
    """
    headers = native.glob(["*.h"], allow_empty = True)
    for source in native.glob(["*_fuzz.c"], allow_empty = True):
        subject = source[:-len("_fuzz.c")]
        deps = LAYERS[subject.split("_")[0]]
        cc_binary(
            name = subject + "_fuzz",
            testonly = True,
            srcs = [source] + headers,
            linkopts = ["-fsanitize=fuzzer"],
            tags = ["manual"],
            deps = deps,
        )
        cc_test(
            name = subject + "_corpus_test",
            srcs = [source] + headers,
            args = ["tests/fuzz/corpus/" + subject],
            data = native.glob(["corpus/" + subject + "/**"], allow_empty = True),
            linkstatic = True,
            deps = deps + [":corpus_main"],
        )
