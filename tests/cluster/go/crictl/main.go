// crictl as far as `kind load docker-image` needs it on a node: `crictl inspecti IMAGE`. The CRI client is Kubernetes'
// own, of the very version that the kubelet has.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
)

const endpoint = "unix:///run/containerd/containerd.sock"

func main() {
	if len(os.Args) != 3 || os.Args[1] != "inspecti" {
		fmt.Fprintln(os.Stderr, "usage: crictl inspecti IMAGE (this one knows nothing else)")
		os.Exit(2)
	}
	if err := inspect(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func inspect(name string) error {
	images, err := remote.NewRemoteImageService(endpoint, 10*time.Second, nil, nil)
	if err != nil {
		return err
	}
	found, err := images.ImageStatus(context.Background(), &runtimeapi.ImageSpec{Image: name}, false)
	if err != nil {
		return err
	}
	if found.Image == nil {
		return fmt.Errorf("no such image %q present", name)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"status": map[string]any{
		"id": found.Image.Id, "repoTags": found.Image.RepoTags, "repoDigests": found.Image.RepoDigests,
	}})
}
