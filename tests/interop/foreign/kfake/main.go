// kfake prints the bootstrap servers of a cluster of franz-go's kfake and runs until its input ends.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(2))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	_, _ = io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}
