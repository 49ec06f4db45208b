"""Keys one after the other: what a key opens has the keys that follow it, however they arrive.

Textual hands each key at once to what has the focus by then. Of keys that arrive together, the
second one would still go to the list although the first one opens a field for text.
"""

from collections import deque

from textual import events
from textual.app import App
from textual.dom import DOMNode


class KeysInTurn(App[None]):
    """Keeps a key until the one before has done its work, and the focus has moved."""

    def __init__(self) -> None:
        super().__init__(ansi_color=True)
        self._typed: deque[events.Key | events.Paste] = deque()
        self._taking = False

    async def on_event(self, event: events.Event) -> None:
        """Take keys in turn, and all else as it comes (Textual's own word for it)."""
        leaves = isinstance(event, events.Key) and event.key == "ctrl+c"  # always, and at once
        if leaves or not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if not self._taking:
            await self._take()

    async def _take(self) -> None:
        """Take the next key; it goes up from what has the focus, and what it caused goes up, too.

        A page that it opened is then made, and has moved the focus to where that begins.
        """
        self._taking = bool(self._typed)
        if self._typed:
            target = self.focused or self.screen
            await super().on_event(self._typed.popleft())
            self._climb(target, [target, None])

    def _climb(self, node: DOMNode, then: list[DOMNode | None]) -> None:
        """Follow a key up behind it, by all who may handle it; then from each of `then`.

        None is what has the focus by then.
        """
        while node is not self:
            above = node.parent or self
            if node.call_later(self._climb, above, then):
                return
            node = above  # it has been closed
        # Twice: the focus moves by a message to the app.
        self.call_later(self.call_later, self._up, then)

    async def _up(self, then: list[DOMNode | None]) -> None:
        if then:
            self._climb(then[0] or self.focused or self.screen, then[1:])
        else:
            await self._take()
