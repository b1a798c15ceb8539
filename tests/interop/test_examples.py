from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from openengine_sidecar.launch.stack.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

EXAMPLES = Path(__file__).resolve().parents[2] / "launch" / "examples"
CHECKED = {
    "multimodal.sh": "the engine received the image, then the video",
    "lora.sh": "the adapter is gone, the base model is not",
    "disagg_1p1d.sh": "the decode engine went on from the prefill engine's session, and none is left",
    "kv_routed.sh": "later turns went where the conversation was",
    "audio.sh": "the engine received every byte of it",
}


async def run(script: str, *options: str, directory: Path) -> tuple[int | None, str]:
    bash = shutil.which("bash")
    assert bash is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        bash,
        str(EXAMPLES / script),
        *options,
        env={**os.environ, "PATH": path, "TMPDIR": str(directory), "HOME": str(directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.parametrize("script", CHECKED)
async def test_an_example_checks_what_the_engine_received(script: str, tmp_path: Path) -> None:
    status, output = await run(script, "--port", str(free_port()), directory=tmp_path)
    assert status == 0, output
    assert CHECKED[script] in output


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.sh") if path.name != "common.sh"))
async def test_every_example_explains_itself(script: str, tmp_path: Path) -> None:
    status, output = await run(script, "--help", directory=tmp_path)
    assert status == 0
    assert output.startswith(f"usage: {script}")
