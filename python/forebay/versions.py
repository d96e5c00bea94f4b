"""The version of a class: a digest of its code and of every value that its code reads.

The store reuses a run only if the version of each of its classes is the same. A version therefore covers everything that
can change the run:

======================  =====================================================================================
the class               its attributes and the attributes of its base classes
a function              its bytecode, its defaults, the values that it closes over, and the globals that it reads
a module of the user    the attributes that a function reads
an object               its class, and its state as pickle sees it
an installed library    its name and ``__version__``
======================  =====================================================================================

Pickle cannot save an open file, a lock or a generator. A class that reads such an object has no version (``Unkeyed``).
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Hex digits of a version, the same number as for a crate in Rust.
_DIGITS = 16
#: Attributes that Python adds to a class.
_OF_PYTHON = {
    "__abstractmethods__",
    "__annotate__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__qualname__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, type(...))
_NAMED = (
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)


class Unkeyed(Exception):
    """A class reads a value that pickle cannot save. The message names the value."""


def version(cls: type) -> str:
    """The version of a class, as hex digits.

    Raises:
        Unkeyed: The class reads a value that pickle cannot save, or values are nested too deeply.
    """
    own = {base.__module__.partition(".")[0] for base in cls.__mro__ if not _in_python(base.__module__)}
    walk = _Walk(own)
    try:
        walk.add(cls)
    except RecursionError as error:
        raise Unkeyed("values are nested too deeply") from error
    return walk.digest.hexdigest()[:_DIGITS]


def _in_python(module: str | None) -> bool:
    top = (module or "builtins").partition(".")[0]
    return top != "__main__" and (top in sys.stdlib_module_names or top in sys.builtin_module_names)


@functools.cache
def _installed() -> tuple[Path, ...]:
    paths = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    return tuple(Path(path).resolve() for path in paths)


class _Walk:
    def __init__(self, own: set[str]) -> None:
        self.digest = hashlib.sha256()
        #: Packages of the class and its bases. The digest covers their code instead of their ``__version__``.
        self._own = own - {"forebay"}
        self._seen: dict[int, int] = {}
        #: Objects that the walk has met. They must stay alive, since Python would reuse their ids.
        self._alive: list[Any] = []
        self._modules: set[tuple[int | str, ...]] = set()
        self._where: list[str] = []

    def add(self, it: Any) -> None:
        if type(it) in _PLAIN:
            # The digest includes the type: 1, 1.0 and True are equal but lead to different results.
            self._put(type(it).__name__, repr(it))
            return
        # Python may store equal tuples once or twice, so their ids mean nothing.
        if type(it) not in (tuple, frozenset):
            if id(it) in self._seen:
                self._put("again", self._seen[id(it)])
                return
            self._seen[id(it)] = len(self._seen)
            self._alive.append(it)
        name = self._library(it)
        if name is not None:
            self._put("library", name)
        elif isinstance(it, types.FunctionType):
            self._function(it)
        elif isinstance(it, type):
            self._class(it)
        elif isinstance(it, types.CodeType):
            self._code(it)
        elif isinstance(it, types.ModuleType):
            self._module(it, sorted(name for name in vars(it) if not name.startswith("__")))
        else:
            self._object(it)

    def _put(self, *parts: object) -> None:
        for part in parts:
            text = str(part).encode(errors="surrogatepass")
            self.digest.update(f"{len(text)}:".encode() + text)

    def _all(self, kind: str, values: Iterable[tuple[object, Any]]) -> None:
        values = list(values)
        self._put(kind, len(values))
        for name, value in values:
            with self._at(str(name)):
                self.add(value)

    @contextmanager
    def _at(self, name: str) -> Iterator[None]:
        self._where.append(name)
        yield
        self._where.pop()

    def _library(self, it: Any) -> str | None:
        """The name and version of a library's module, class or function; None for other objects."""
        if isinstance(it, types.ModuleType):
            module, name = it.__name__, ""
        elif isinstance(it, (type, types.FunctionType)):
            module, name = it.__module__ or "", it.__qualname__
        else:
            return None
        top = module.partition(".")[0]
        if _in_python(module) or (top == "forebay" and not module.startswith("forebay.examples")):
            return f"{module}.{name}"
        package = sys.modules.get(top)
        file = getattr(package, "__file__", None)
        if top in self._own or file is None:
            return None
        folders = Path(file).resolve().parents
        if not any(folder in folders for folder in _installed()):
            return None
        return f"{module}.{name} {getattr(package, '__version__', '')}"

    def _class(self, cls: type) -> None:
        bases = ((base.__name__, base) for base in cls.__bases__)
        self._all("class", bases)
        if type(cls) is not type:
            self.add(type(cls))
        attributes = sorted(vars(cls).items())
        self._all("attributes", ((name, it) for name, it in attributes if name not in _OF_PYTHON))

    def _function(self, it: types.FunctionType) -> None:
        self.add(it.__code__)
        parameters = it.__code__.co_varnames[: it.__code__.co_argcount]
        defaults = it.__defaults__ or ()
        self._all("defaults", zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
        self._all("keywords", (it.__kwdefaults__ or {}).items())
        self._all("attributes", sorted(vars(it).items()))
        self._read(it)

    def _read(self, it: types.FunctionType) -> None:
        """Adds the values that a function reads besides its arguments."""
        codes = list(_codes(it.__code__))
        names = sorted({name for code in codes for name in code.co_names})
        loaded, imported = set(), set()
        for code in codes:
            for step in dis.get_instructions(code):
                if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    loaded.add(step.argval)
                elif step.opname == "IMPORT_NAME":
                    imported.add(step.argval)
        for name, cell in zip(it.__code__.co_freevars, it.__closure__ or (), strict=True):
            with self._at(name):
                try:
                    self._value(cell.cell_contents, names)
                except ValueError:
                    self._put("empty")
        for name in sorted(loaded):
            with self._at(name):
                if name in it.__globals__:
                    self._value(it.__globals__[name], names)
                else:
                    self._put("builtin", name, hasattr(builtins, name))
        for name in sorted(imported):
            with self._at(name):
                self._value(sys.modules.get(name), names)

    def _value(self, value: Any, names: list[str]) -> None:
        """Adds a value that a function reads. Of a module, adds only the attributes that the function may read."""
        if isinstance(value, types.ModuleType) and self._library(value) is None:
            self._module(value, names)
        else:
            self.add(value)

    def _module(self, module: types.ModuleType, names: list[str]) -> None:
        there = [name for name in names if name in vars(module)]
        self._put("module", module.__name__, *there)
        # Modules may import each other circularly.
        if (id(module), *there) in self._modules:
            return
        self._modules.add((id(module), *there))
        for name in there:
            with self._at(name):
                inner = vars(module)[name]
                if inner is not module:
                    self._value(inner, names)

    def _code(self, code: types.CodeType) -> None:
        self._put("code", code.co_code.hex(), code.co_exceptiontable.hex(), code.co_flags)
        self._put(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self._put(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._all("constants", enumerate(code.co_consts))

    def _object(self, it: Any) -> None:
        if type(it) in (list, tuple):
            self._all(type(it).__name__, enumerate(it))
        elif type(it) in (dict, types.MappingProxyType):
            self._all("keys", enumerate(it))
            self._all("values", it.items())
        elif type(it) in (set, frozenset):
            self._put(type(it).__name__, *sorted(self._alone(one) for one in it))
        elif isinstance(it, types.MethodType):
            self._all("method", (("self", it.__self__), (it.__func__.__name__, it.__func__)))
        elif isinstance(it, (staticmethod, classmethod)):
            self._put(type(it).__name__)
            self.add(it.__func__)
        elif isinstance(it, property):
            self._all("property", (("get", it.fget), ("set", it.fset), ("delete", it.fdel)))
        elif isinstance(it, functools.cached_property):
            self.add(it.func)
        elif hasattr(it, "__wrapped__") and callable(it):
            self.add(it.__wrapped__)
        elif isinstance(it, _NAMED):
            owner = getattr(it, "__objclass__", None) or getattr(it, "__module__", "")
            self._put("named", getattr(owner, "__qualname__", owner), it.__qualname__)
            # A bound method in C, such as `append` of a list.
            of = getattr(it, "__self__", None)
            if of is not None and not isinstance(of, types.ModuleType):
                self.add(of)
        else:
            self._reduced(it)

    def _reduced(self, it: Any) -> None:
        try:
            reduced = it.__reduce_ex__(4)
        except Exception as error:
            where, kind = ": ".join(self._where), type(it).__qualname__
            raise Unkeyed(f"{where}: the state of a {kind} cannot be compared") from error
        if isinstance(reduced, str):
            self._put("name", type(it).__module__, type(it).__qualname__, reduced)
            return
        make, arguments, state, members, items = (*reduced, None, None, None)[:5]
        parts = (make, arguments, state, members and list(members), items and list(items))
        self._alive.append(parts)
        self._all("object", zip(("class", "arguments", "state", "members", "items"), parts, strict=True))

    def _alone(self, it: Any) -> str:
        """The digest of one element of a set. Sorted digests do not depend on the order of the set."""
        walk = _Walk(self._own)
        walk._where = self._where
        walk.add(it)
        return walk.digest.hexdigest()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
