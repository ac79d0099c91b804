# The libraries of others, in the versions of tests/interop; sourced by scripts/interop and scripts/peers, in the folder of the workspace.

cache=$(realpath -m "${CARGO_TARGET_DIR:-target}")/interop

say() { printf '\n== %s\n' "$*"; }
complain() { printf 'interop: %s\n' "$*" >&2; }

# need PROGRAM PACKAGES: says what to install if there is no such program.
need() {
    command -v "$1" >/dev/null || { complain "there is no $1; on Debian and Ubuntu: sudo apt-get install $2"; exit 1; }
}

# get KIND LIST: runs fetch_KIND in $cache/KIND, unless what is there was made from the same list.
get() {
    local kind=$1 list=$2
    if cmp --silent "$list" "$cache/$kind.done"; then
        return
    fi
    say "getting what $list names"
    rm -rf "${cache:?}/$kind"
    mkdir -p "$cache/$kind"
    "fetch_$kind" "$cache/$kind" "$list"
    cp "$list" "$cache/$kind.done"
}

fetch_python() {
    python3 -m venv "$1"
    "$1/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$2"
}

fetch_node() {
    cp "$2" "$1/package.json"
    npm install --prefix "$1" --loglevel error --no-audit --no-fund --no-package-lock --ignore-scripts
}

# The jars that the list names, and our members compiled with them.
fetch_java() {
    mvn --quiet --batch-mode --file "$2" "-DoutputDirectory=$1/lib" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies
}
