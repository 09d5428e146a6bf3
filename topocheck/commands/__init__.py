"""Launch commands: what a command line asks for, and the plan that it declares."""

from __future__ import annotations

from topocheck.commands.command import Found, parse_command, parse_script, parse_words
from topocheck.commands.launch import Launch, Starter, Stated
from topocheck.commands.planned import origins, to_plan, world_of

__all__ = [
    "Found",
    "Launch",
    "Starter",
    "Stated",
    "origins",
    "parse_command",
    "parse_script",
    "parse_words",
    "to_plan",
    "world_of",
]
