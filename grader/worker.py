"""Grades logs with the official swebench package of the environment this runs in; its answers are what the official
functions return, unchanged.

Reads one JSON request a line from standard input and writes one JSON answer a line to standard output:

  {"id": 1, "op": "script", "row": {...}}                                -> {"id": 1, "script": "#!/bin/bash\\n..."}
  {"id": 2, "op": "grade", "row": {...}, "log": "/path/test_output.txt"} -> {"id": 2, "report": {...}, "statuses": {...},
                                                                            "prepared": [...]}
  {"id": 3, "op": "reason", "logs": ["/path/test_output.txt", ...]}      -> {"id": 3, "reason": ["oom", "environment"]}

Before the first request it says its version, and which log parsers (5.x) or versions of repositories (4.x) it knows.

`report` is the value of get_eval_report for the instance, `statuses` the map that the log parser made (empty when the
log was not usable), `prepared` names what was done to a log that the official code cannot take, `reason` what
classify_logs of 5.x says of logs without a result (null when it knows none). A request that fails
is answered with {"id": ..., "error": "KeyError: 'x'"}: the traceback's last line. Lists of tests are lists here;
the rows' other spellings are the caller's to read.
"""

import importlib.metadata
import json
import os
import re
import resource
import sys
import tempfile
import traceback
import types
from importlib.util import find_spec

# Memory for the largest log that is graded; beyond it Python raises MemoryError, which costs this answer only.
MEMORY_BYTES = int(os.environ.get("ORCHARD_GRADER_MIB", "4096")) << 20
VERSION = importlib.metadata.version("swebench")
FIVE = int(VERSION.split(".")[0]) >= 5


def bare(name):
    """A package without its __init__, which would load everything the official command line needs."""
    module = types.ModuleType(name)
    module.__path__ = list(find_spec(name).submodule_search_locations)
    sys.modules[name] = module


def stand_in(name):
    """A module for `from name import anything`: what is imported from it is never called in grading."""

    class Absent(types.ModuleType):
        def __getattr__(self, attribute):
            if attribute.startswith("__"):
                raise AttributeError(attribute)

            def absent(*_args, **_kwargs):
                raise RuntimeError(f"{name}.{attribute} is not installed for grading")

            return absent

    sys.modules[name] = Absent(name)


bare("swebench")
bare("swebench.harness")
for package in ("datasets", "docker", "docker.models", "docker.models.containers", "bs4", "ghapi", "ghapi.all", "git", "modal", "rich", "tenacity", "tqdm"):
    stand_in(package)

from swebench.harness import grading  # noqa: E402

official_get_logs_eval = grading.get_logs_eval
seen = {}


def get_logs_eval(*args):
    """The official function, keeping the status map that the report is made of."""
    statuses, found = official_get_logs_eval(*args)
    seen.clear()
    seen.update(statuses)
    return statuses, found


grading.get_logs_eval = get_logs_eval


def spec_of(row):
    if FIVE:
        from swebench.types import TestSpec

        return TestSpec(
            instance_id=row["instance_id"],
            image=row.get("image") or "",
            eval_script_list=[],
            repo=row["repo"],
            version=row.get("version") or "",
            FAIL_TO_PASS=row["FAIL_TO_PASS"],
            PASS_TO_PASS=row["PASS_TO_PASS"],
            log_parser=row["log_parser"],
            eval_type=row.get("eval_type") or "pass_and_fail",
        )
    from swebench.harness.constants import MAP_REPO_TO_EXT, MAP_REPO_VERSION_TO_SPECS
    from swebench.harness.test_spec.test_spec import TestSpec

    MAP_REPO_VERSION_TO_SPECS[row["repo"]][row["version"]]
    return TestSpec(
        instance_id=row["instance_id"],
        repo=row["repo"],
        version=row["version"],
        repo_script_list=[],
        eval_script_list=[],
        env_script_list=[],
        arch="x86_64",
        FAIL_TO_PASS=row["FAIL_TO_PASS"],
        PASS_TO_PASS=row["PASS_TO_PASS"],
        language=MAP_REPO_TO_EXT[row["repo"]],
        docker_specs={},
        namespace="swebench",
    )


def eval_script(row):
    """The official eval.sh of a row."""
    if FIVE:
        from swebench.harness.utils import make_test_spec

        return make_test_spec(row).eval_script
    from swebench.harness.constants import MAP_REPO_VERSION_TO_SPECS
    from swebench.harness.test_spec.create_scripts import make_eval_script_list

    specs = MAP_REPO_VERSION_TO_SPECS[row["repo"]][row["version"]]
    lines = make_eval_script_list(row, specs, "testbed", "/testbed", row["base_commit"], row["test_patch"])
    return "\n".join(["#!/bin/bash", "set -uxo pipefail", *lines]) + "\n"


def known():
    """What rows may name: log parsers in 5.x, repositories with their versions in 4.x."""
    if FIVE:
        return {"parsers": sorted(grading.PARSER_REGISTRY)}
    from swebench.harness.constants import MAP_REPO_VERSION_TO_SPECS

    return {"repositories": {repo: sorted(versions) for repo, versions in MAP_REPO_VERSION_TO_SPECS.items()}}


def reason_of(logs):
    if not FIVE:
        return None
    from swebench.harness.infra_failure import classify_logs

    return classify_logs(*logs)


def grade(row, log):
    prepared = []
    try:
        with open(log, encoding="utf-8") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        prepared.append("bytes that are not UTF-8 were replaced: the official code reads strictly")
    prediction = {"instance_id": row["instance_id"], "model_name_or_path": "orchard", "model_patch": "not read"}
    spec = spec_of(row)
    if not prepared:
        report = grading.get_eval_report(spec, prediction, log, True)
    else:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as whole:
            with open(log, encoding="utf-8", errors="replace", newline="") as file:
                while text := file.read(1 << 20):
                    whole.write(text)
            whole.flush()
            report = grading.get_eval_report(spec, prediction, whole.name, True)
    answer = report[row["instance_id"]]
    return {"report": answer, "statuses": dict(seen), "prepared": prepared}


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the official code prints
    print(json.dumps({"version": VERSION, **known()}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["op"] == "script":
                answer = {"script": eval_script(request["row"])}
            elif request["op"] == "reason":
                answer = {"reason": reason_of(request["logs"])}
            else:
                answer = grade(request["row"], request["log"])
        except Exception as problem:
            answer = {"error": re.sub(r"\s+", " ", traceback.format_exception_only(problem)[-1]).strip()}
        print(json.dumps({"id": request["id"], **answer}), file=answers, flush=True)


main()
