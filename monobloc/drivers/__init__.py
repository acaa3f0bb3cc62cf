"""`monobloc cc`, `c++`, `ar` and `ld`: tools that existing builds call in place of their own.

    cc -c      an object that any linker takes, with bitcode for ours beside the native code
    cc, ld     models among the inputs are compiled from their graphs, all code is optimized as one program
    ar         the toolchain's archiver

Builds start them once per file, so nothing heavy is imported before it is needed. Arguments, exit
codes and messages are those of clang and lld.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VERBS = ("cc", "c++", "ar", "ld")


def main(verb: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """One call of a tool; the exit code. `env` is what the tools see."""
    if verb == "ar":
        from monobloc.drivers import tools

        return tools.call([*tools.ar(), *argv], env)
    if verb == "ld":
        from monobloc.drivers import ld

        return ld.main(argv, env)
    from monobloc.drivers import cc

    return cc.main(verb, argv, env)
