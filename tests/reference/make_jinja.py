"""Writes what Python's jinja2 makes of the snippets in tests/data/jinja.json.

The environment is the one of transformers' chat templates: sandboxed and immutable, trim_blocks,
lstrip_blocks, loop controls, the generation tag, its own tojson. The sources in the file are the input; "expected" or
"error" of each case is the output. Add a case with its source alone, and run this.

    python3 tests/reference/make_jinja.py [--check]

Needs jinja2 3.1 (Debian: python3-jinja2).
"""
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

FILE = pathlib.Path(__file__).parent.parent / "data" / "jinja.json"


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = jinja2.nodes.CallBlock(self.call_method("_said"), [], [], body)
        return call.set_lineno(line)

    @staticmethod
    def _said(caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    text = FILE.read_text(encoding="utf-8")
    data = json.loads(text)
    env = environment()
    cases = []
    for case in data["cases"]:
        out = {"source": case["source"]}
        try:
            out["expected"] = env.from_string(case["source"]).render(
                messages=data["messages"], **data["variables"])
        except Exception as error:  # whatever a template raises
            out["error"] = str(error)
        cases.append(out)
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases)
    messages, variables = (
        json.dumps(data[name], ensure_ascii=False) for name in ("messages", "variables"))
    made = '{\n "messages": %s,\n "variables": %s,\n "cases": [\n%s\n ]\n}\n' % (
        messages, variables, lines)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if made == text else f"{FILE} differs from what jinja2 makes of it")
    FILE.write_text(made, encoding="utf-8")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} of them errors")


if __name__ == "__main__":
    main()
