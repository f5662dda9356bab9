"""Check suites: one test target a file."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")
load("//bazel:layers.bzl", "LAYERS")

def check_test(name, srcs, deps = [], data = [], **kwargs):
    """A Check binary that uses tests/test_main.h.

    It runs in a folder laid out like the repository, so that a path such as tests/golden/FILE is that of the tree.

    Args:
      name: the test's name.
      srcs: its sources.
      deps: libraries that it includes.
      data: files and programs that it opens.
      **kwargs: further attributes of cc_test.
    """
    cc_test(
        name = name,
        srcs = srcs,
        data = data,
        linkstatic = True,
        deps = deps + [
            "//tests:test_main",
            "//third_party:check",
        ],
        **kwargs
    )

# Tests that start services, which a sandbox does not let them.
_UNSANDBOXED = [
    "harness_report_browser_test.c",
    "harness_sweep_slurm_test.c",
]

def check_tests():
    """One check_test for every LAYER_SUBJECT_test.c, with the libraries of its layer.

    LAYER_*.c and LAYER_*.h that are no tests are shared by all tests of that layer.
    """
    for layer, deps in LAYERS.items():
        tests = native.glob([layer + "_*_test.c"], allow_empty = True)
        cc_library(
            name = layer + "_support",
            testonly = True,
            srcs = native.glob([layer + "_*.c"], exclude = tests, allow_empty = True),
            hdrs = native.glob([layer + "_*.h"], allow_empty = True),
            linkstatic = True,
            deps = deps + [
                ":test_main",
                "//third_party:check",
            ],
        )
        data = [
            ":data",
            "//vmm:profiles",
            "//workloads:bundled",
        ]
        if layer == "tests":
            data = data + ["//results"]
        if layer == "harness":
            data = data + [
                ":report_browser.py",
                ":slurm_sweep.sh",
                "//harness:lakebed",
                "//tests/fake_cuda:libcuda.so.1",
                "//tests/fake_cupti:libfake_cupti.so",
                "//tests/nvtx_listener:libnvtx_listener.so",
            ]
        for source in tests:
            check_test(
                name = source[:-len(".c")],
                srcs = [source],
                data = data,
                tags = ["no-sandbox"] if source in _UNSANDBOXED else [],
                deps = deps + [":" + layer + "_support"],
            )
