"""`python -m openengine_sidecar.launch.engine` runs the reference engine."""

import sys

import click

from openengine_sidecar.launch.engine.command import engine
from openengine_sidecar.messages.errors import ConfigurationError

USAGE_ERROR = 2

if __name__ == "__main__":
    try:
        engine()
    except ConfigurationError as error:
        click.echo(f"engine: {error}", err=True)
        sys.exit(USAGE_ERROR)
