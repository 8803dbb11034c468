#!/usr/bin/env bash
# Runs the tests of python-redis-lock as they are in its source package, with the redis-server that stands first on the PATH. Left
# out are the variants with eventlet, which is given up by its makers and takes long to be imported, of ten seconds that the suite allows.
set -euo pipefail
cd "$(dirname "$0")"
python3 -m venv "$SCRATCH/venv"
pip() { "$SCRATCH/venv/bin/pip" -q --disable-pip-version-check "$@"; }
pip install -r requirements.txt
pip download --no-deps --no-binary :all: -d "$SCRATCH" python-redis-lock==4.0.1
tar -xzf "$SCRATCH"/python_redis_lock-4.0.1.tar.gz -C "$SCRATCH"
cd "$SCRATCH/python_redis_lock-4.0.1"
echo "python-redis-lock 4.0.1: $(command -v redis-server)"
export PYTHONPATH=tests PYTHONUNBUFFERED=yes DJANGO_SETTINGS_MODULE=test_project.settings
# Most of them wait; so several at a time. They allow the server two seconds to start and locks half a second: what fails because the
# machine was busy with the others must pass alone.
test() { "$SCRATCH/venv/bin/pytest" -q --tb=short -k 'not eventlet' "$@" tests; }
test -n 3 || test --last-failed
