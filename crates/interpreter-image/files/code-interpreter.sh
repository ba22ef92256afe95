#!/bin/sh
# The entrypoint that clients of OpenSandbox name. The agent starts kernels by itself, so that this
# only has to stay.
exec tail -f /dev/null
