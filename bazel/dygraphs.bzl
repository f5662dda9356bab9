"""A repository for the chart code of HTML reports: Debian's package libjs-dygraphs, or npm's dygraphs."""

_BUILD = """exports_files(["dygraph.min.js", "dygraph.min.css", "dygraph.license"], visibility = ["//visibility:public"])
"""

def _dygraphs_impl(repository_ctx):
    home = repository_ctx.os.environ.get("DYGRAPHS_HOME") or "/usr/share/javascript/dygraphs"
    licenses = [home + "/LICENSE.txt", "/usr/share/doc/libjs-dygraphs/copyright"]
    found = [path for path in licenses if repository_ctx.path(path).exists]
    code = repository_ctx.path(home + "/dist/dygraph.min.js")
    if not code.exists or not found:
        fail("dygraphs is not in {}: install Debian's libjs-dygraphs, or unpack npm's dygraphs and name its folder in DYGRAPHS_HOME".format(home))
    repository_ctx.symlink(code, "dygraph.min.js")
    repository_ctx.symlink(home + "/dist/dygraph.min.css", "dygraph.min.css")
    repository_ctx.symlink(found[0], "dygraph.license")
    repository_ctx.file("BUILD", _BUILD)

dygraphs = repository_rule(
    implementation = _dygraphs_impl,
    environ = ["DYGRAPHS_HOME"],
    local = True,
    doc = "@dygraphs//:dygraph.min.js, dygraph.min.css and dygraph.license.",
)
