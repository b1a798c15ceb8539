"""A plain model of supervision: no tasks, no mailboxes, no time but a number; what happens is a list of words."""

from __future__ import annotations

from dataclasses import dataclass, field

from openengine_sidecar.supervision import Restart, Strategy

FAILED, FATAL, NORMAL = "failed", "fatal", "normal"


@dataclass
class Leaf:
    name: str
    restart: Restart = Restart.PERMANENT
    thread: bool = False
    path: str = ""
    alive: bool = False
    begun: bool = False
    failing_starts: int = 0


@dataclass
class Sup:
    name: str
    strategy: Strategy
    max_restarts: int
    children: list[Node]
    restart: Restart = Restart.PERMANENT
    path: str = ""
    alive: bool = False
    begun: bool = False
    incidents: list[float] = field(default_factory=list)


Node = Leaf | Sup


class StartFailedError(Exception):
    pass


class EscalatedError(Exception):
    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Model:
    """Runs a tree; `events` says what every leaf did, in order: + starts, - stops, ! ends by a failure."""

    def __init__(self, root: Sup, window: float) -> None:
        self.root = root
        self.window = window
        self.now = 0.0
        self.events: list[str] = []
        self.parents: dict[str, Sup] = {}
        self._adopt(root, "/stage")

    def leaves(self, node: Node | None = None) -> list[Leaf]:
        node = node if node is not None else self.root
        if isinstance(node, Leaf):
            return [node]
        return [leaf for child in node.children for leaf in self.leaves(child)]

    def taken(self) -> list[str]:
        events, self.events = self.events, []
        return events

    def start(self) -> None:
        self._start(self.root)

    def end(self, leaf: Leaf, kind: str) -> None:
        """A living leaf ends by itself."""
        leaf.alive = False
        self.events.append(f"{'-' if kind == NORMAL else '!'}{leaf.path}")
        child: Node = leaf
        while child is not self.root:
            sup = self.parents[child.path]
            try:
                self._answer(sup, child, kind)
            except EscalatedError as escalated:
                self._stop_children(sup)
                sup.alive = False
                child, kind = sup, escalated.kind
            else:
                return

    def stop(self) -> None:
        self._stop(self.root)

    def _adopt(self, node: Node, above: str) -> None:
        node.path = f"{above}/{node.name}"
        if isinstance(node, Sup):
            for child in node.children:
                self._adopt(child, node.path)
                self.parents[child.path] = node

    def _start(self, node: Node) -> None:
        node.begun = True
        if isinstance(node, Leaf):
            self.events.append(f"+{node.path}")
            if node.failing_starts:
                node.failing_starts -= 1
                self.events.append(f"!{node.path}")
                raise StartFailedError
            node.alive = True
            return
        node.incidents = []
        for child in node.children:
            child.begun = False
        for child in node.children:
            try:
                self._start(child)
            except StartFailedError:
                self._stop_children(node)
                raise
        node.alive = True

    def _stop(self, node: Node) -> None:
        if not node.alive:
            return
        if isinstance(node, Sup):
            self._stop_children(node)
        else:
            self.events.append(f"-{node.path}")
        node.alive = False

    def _stop_children(self, sup: Sup) -> None:
        for child in reversed(sup.children):
            self._stop(child)

    def _answer(self, sup: Sup, child: Node, kind: str) -> None:
        if child.restart is Restart.TEMPORARY or (child.restart is Restart.TRANSIENT and kind == NORMAL):
            return
        group = self._touched(sup, child)
        while True:
            self._spend(sup, kind)
            for node in reversed(group):
                self._stop(node)
            failed = self._start_group(group)
            if failed is None:
                return
            kind = FAILED
            if sup.strategy is Strategy.REST_FOR_ONE:
                group = group[group.index(failed) :]

    def _start_group(self, group: list[Node]) -> Node | None:
        for node in group:
            if node.restart is Restart.TEMPORARY and node.begun:
                continue
            try:
                self._start(node)
            except StartFailedError:
                if node.restart is not Restart.TEMPORARY:
                    return node
        return None

    def _spend(self, sup: Sup, kind: str) -> None:
        if kind == FATAL:
            raise EscalatedError(FATAL)
        sup.incidents = [moment for moment in sup.incidents if moment > self.now - self.window]
        sup.incidents.append(self.now)
        if len(sup.incidents) > sup.max_restarts:
            raise EscalatedError(FAILED)

    @staticmethod
    def _touched(sup: Sup, child: Node) -> list[Node]:
        match sup.strategy:
            case Strategy.ONE_FOR_ONE:
                return [child]
            case Strategy.ONE_FOR_ALL:
                return list(sup.children)
            case Strategy.REST_FOR_ONE:
                return sup.children[sup.children.index(child) :]
