"""Where Bazel's own dependencies come from when it must not ask the network."""

def offline_repositories():
    """Local stand-ins for what Debian's Bazel wants to download.

    Debian builds Bazel without a version number. A released Bazel (bazelisk)
    brings dependencies that fit it, see MODULE.bazel.
    """
    if native.bazel_version:
        return
    native.local_repository(
        name = "rules_cc",
        path = "bazel/rules_cc",
    )
    native.local_repository(
        name = "remote_coverage_tools",
        path = "bazel/remote_coverage_tools",
    )
    native.local_repository(
        name = "rules_java",
        path = "/usr/share/bazel/rules/java",
    )
