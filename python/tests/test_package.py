"""The package itself: imports, types, and the command."""

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import ddlp
from conftest import ddlp_command
from ddlp import _ddlp

PACKAGE = Path(ddlp.__file__).parent


def test_importing_needs_neither_numpy_nor_torch():
    code = "import sys, ddlp; print(*sorted({'torch', 'numpy'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE).stdout
    assert said == "\n"


def test_the_wheel_fits_every_python_from_3_11_on():
    tags = importlib.metadata.distribution("ddlp").read_text("WHEEL")
    # Interpreters without the lock have no stable ABI yet.
    assert "cp311-abi3" in tags or sysconfig.get_config_var("Py_GIL_DISABLED"), tags


def test_the_version_is_that_of_the_command():
    assert ddlp.__version__ == importlib.metadata.version("ddlp")
    assert ddlp_command("--version") == f"ddlp {ddlp.__version__}\n"


def test_all_public_names_are_documented():
    for name in ddlp.__all__:
        thing = getattr(ddlp, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name
    for name, method in inspect.getmembers(ddlp.Loader, inspect.isfunction):
        assert name.startswith("_") or inspect.getdoc(method), name


def test_every_option_of_the_loader_is_documented():
    documented = inspect.getdoc(ddlp.Loader.__init__).split("Args:")[1].split("Raises:")[0]
    for option in list(inspect.signature(ddlp.Loader).parameters):
        assert f"\n    {option}: " in documented, option


def test_the_stubs_name_what_the_native_part_has():
    assert (PACKAGE / "py.typed").is_file()
    stub = ast.parse((PACKAGE / "_ddlp.pyi").read_text())
    described = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    native = {name for name in vars(_ddlp) if not name.startswith("_")} - {"VERSION"}
    assert set(described) == native
    for name, node in described.items():
        if isinstance(node, ast.ClassDef):
            stubbed = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            stubbed |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
            real = {part for part in vars(getattr(_ddlp, name)) if not part.startswith("__")}
            assert real <= stubbed, name
            # Python has had the name __buffer__ since 3.12.
            missing = stubbed - real - set(dir(getattr(_ddlp, name))) - {"__buffer__"}
            assert not missing, name


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter always has its lock")
def test_importing_the_package_does_not_turn_the_lock_of_the_interpreter_on():
    program = "import ddlp, sys; assert not sys._is_gil_enabled()"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_the_programs_lie_in_the_package():
    for program in ("ddlp", "ddlp-device"):
        assert ddlp_command("--version").split()[1] in subprocess.check_output(
            [PACKAGE / "bin" / program, "--version"], text=True
        )


@pytest.mark.parametrize(("module", "package"), [("spark", "pyspark"), ("ray", "ray")])
def test_a_module_whose_package_is_missing_says_what_to_install(module, package):
    code = f"import sys; sys.modules[{package!r}] = None; import ddlp.{module}"
    said = subprocess.run([sys.executable, "-c", code], text=True, stderr=subprocess.PIPE).stderr
    assert re.search(f"^ImportError: ddlp.{module} needs the package {package}.* pip install .?{package}", said, re.M)
