#!/bin/sh
# From a checkout and an empty folder to a cluster of three and three that a browser shows, as README
# and docs/tutorial.md say it: the seconds from the start after each step.
#   benchmarks/newcomer.sh [CHECKOUT]
set -eu
checkout=$(cd "${1:-.}" && pwd)
new=$(mktemp -d)
cd "$new"
begun=$(date +%s.%N)
said() { echo "$(echo "$(date +%s.%N) - $begun" | bc | cut -c1-6) s  $1"; }
ended() { bin/paxosblock cluster down > down 2>&1 || cat down; rm -rf "$new"; }
trap ended EXIT

python3 -m venv .
said "python -m venv"
bin/pip install --quiet --disable-pip-version-check "$checkout"
bin/paxosblock setup raft --yes > raft
said "pip install, setup raft"
bin/paxosblock cluster up --namenodes 3 --base-port 0 > up
said "paxosblock cluster up --namenodes 3"
eval "$(bin/paxosblock cluster env)"
page=$(sed -n 's/^status page *//p' up)
bin/paxosblock fs put up /notes.txt
bin/paxosblock fs cat /notes.txt | cmp - up
said "fs put, fs cat"
chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
    --dump-dom "$page" > page.html 2> chromium
health=$(sed -n 's/.*Health: \([a-z ]*\)<.*/\1/p' page.html | head -1)
said "the page in Chromium: ${health:?the page shows none}"
echo "processor time of all this but the nodes (user, system; the second line):"
times
