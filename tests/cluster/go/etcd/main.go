// etcd. Its own main package is in a module whose go.mod has replaces, which counts for nothing outside of it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
