"""A repository for the CUDA toolkit of this machine, empty where there is none.

A toolkit is cuda.h and nvcc: the kernels are built in with the driver of real devices.
"""

_PRESENT = """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    # What libcuda, CUPTI and NVTX need: a toolkit has thousands more, and a sandbox links each.
    hdrs = glob([
        "include/*.h",
        "include/crt/**",
        "include/nvtx3/**",
    ]),
    defines = ["LAKEBED_HAVE_CUDA=1"],
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""

_ABSENT = """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    visibility = ["//visibility:public"],
)
"""

def _cuda_toolkit_impl(repository_ctx):
    environment = repository_ctx.os.environ
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH") or "/usr/local/cuda"
    include = repository_ctx.path(home + "/include")
    nvcc = repository_ctx.path(home + "/bin/nvcc")
    found = repository_ctx.path(home + "/include/cuda.h").exists and nvcc.exists
    if found:
        repository_ctx.symlink(include, "include")
    repository_ctx.file("BUILD", _PRESENT if found else _ABSENT)
    repository_ctx.file("defs.bzl", "CUDA_FOUND = {}\nNVCC = {}\n".format(
        found,
        repr(str(nvcc)) if found else "None",
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME", "CUDA_PATH"],
    local = True,
    doc = "@cuda//:headers with LAKEBED_HAVE_CUDA=1, and CUDA_FOUND and NVCC in @cuda//:defs.bzl.",
)
