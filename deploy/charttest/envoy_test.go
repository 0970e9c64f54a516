package charttest

import (
	"bytes"
	"os"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	sigsyaml "sigs.k8s.io/yaml"

	// The types of what the file has as Any.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

// TestEnvoy decodes deploy/balancer/envoy.yaml strictly into Envoy's own types and applies their rules, since Envoy itself is
// no Debian package.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../balancer/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("<<:")) {
		t.Error("Envoy's parser of YAML knows no merge keys")
	}
	json, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	var config bootstrap.Bootstrap
	if err := protojson.Unmarshal(json, &config); err != nil {
		t.Fatal(err)
	}
	if err := config.ValidateAll(); err != nil {
		t.Error(err)
	}
	for _, l := range config.GetStaticResources().GetListeners() {
		for _, chain := range l.GetFilterChains() {
			for _, f := range chain.GetFilters() {
				filter, err := f.GetTypedConfig().UnmarshalNew()
				if err != nil {
					t.Fatal(err)
				}
				if v, ok := filter.(interface{ ValidateAll() error }); !ok || v.ValidateAll() != nil {
					t.Errorf("%s: %v", f.GetName(), v.ValidateAll())
				}
			}
		}
	}
}
