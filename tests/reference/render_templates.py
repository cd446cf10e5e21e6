"""Renders chat templates as transformers does, for tests/conformance/chat_matrix_test.cpp.

    python3 tests/reference/render_templates.py < requests > prompts

Each line of the input is a JSON object with the template's path, messages and tools; each line of
the output has its "text" or "error". strftime_now tells noon of 26 July 2024.
"""
import datetime
import json
import sys

from make_jinja import environment


def main():
    env = environment()
    noon = datetime.datetime(2024, 7, 26, 12)
    env.globals["strftime_now"] = noon.strftime
    templates = {}
    for line in sys.stdin:
        request = json.loads(line)
        path = request["path"]
        try:
            if path not in templates:
                with open(path, encoding="utf-8") as file:
                    templates[path] = env.from_string(file.read())
            out = {"text": templates[path].render(
                messages=request["messages"], tools=request["tools"], documents=None,
                add_generation_prompt=True, bos_token="<BOS>", eos_token="<EOS>")}
        except Exception as error:  # whatever a template raises
            out = {"error": str(error)}
        print(json.dumps(out))


if __name__ == "__main__":
    main()
