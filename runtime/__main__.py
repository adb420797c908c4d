"""Run a model: `python -m runtime generate | chat | serve | bench OUT/<model>`.

generate continues a text, chat talks at the terminal, serve answers the OpenAI API, bench measures. Text goes to
stdout as it is made; everything else to stderr.
"""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.command import Parser, run
from runtime import options
from runtime.terminal_bench import bench
from runtime.terminal_chat import chat
from runtime.terminal_generate import generate
from runtime.terminal_serve import serve


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and do what it says."""
    parser = Parser(prog="python -m runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="generate | chat | serve | bench")
    options.add_generate(commands.add_parser("generate", help="continue a text", description=generate.__doc__))
    options.add_chat(commands.add_parser("chat", help="talk to the model", description=chat.__doc__))
    options.add_serve(commands.add_parser("serve", help="answer the OpenAI API", description=serve.__doc__))
    options.add_bench(commands.add_parser("bench", help="measure how fast it is", description=bench.__doc__))
    given = parser.parse_args(arguments)
    return {"generate": generate, "chat": chat, "serve": serve, "bench": bench}[given.command](given)


if __name__ == "__main__":
    run(main)
