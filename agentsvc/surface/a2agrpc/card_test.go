package a2agrpc_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	spec "github.com/a2aproject/a2a-go/v2/a2a"
	clientcard "github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
)

// TestCards checks the gRPC interfaces of cards: address, tenant, and their place in the list when gRPC is
// preferred.
func TestCards(t *testing.T) {
	t.Parallel()
	for preferred, want := range map[bool][]string{true: {"GRPC", "GRPC", "JSONRPC"}, false: {"JSONRPC", "HTTP+JSON"}} {
		h := newFixture(t, surface.Options{}, a2agrpc.Options{Cards: agentcard.Builder{GRPC: agentcard.GRPC{Address: "grpc.example.com:443", Preferred: preferred}}})
		ana := h.mintToken(t, "acme", "ana")
		card := func(agent string) (bindings, over []string) {
			t.Helper()
			c, err := pb10.NewA2AServiceClient(h.conn).GetExtendedAgentCard(withCredentials(t.Context(), ana, agent), &pb10.GetExtendedAgentCardRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range c.GetSupportedInterfaces() {
				if bindings = append(bindings, i.GetProtocolBinding()); i.GetProtocolBinding() == "GRPC" {
					over = append(over, i.GetUrl()+" "+i.GetProtocolVersion()+" "+i.GetTenant())
				}
			}
			return bindings, over
		}
		bindings, over := card("assistant")
		if diff := cmp.Diff(want, bindings[:len(want)]); diff != "" {
			t.Errorf("preferred %v: %s", preferred, diff)
		}
		if diff := cmp.Diff([]string{"grpc.example.com:443 1.0 acme/assistant", "grpc.example.com:443 0.3 "}, over); diff != "" {
			t.Error(diff)
		}
		if _, over := card("clerk"); len(over) != 1 || !strings.HasSuffix(over[0], " acme/clerk") {
			t.Errorf("the card of another agent lists %v", over)
		}
		older, err := pb03.NewA2AServiceClient(h.conn).GetAgentCard(withCredentials(t.Context(), ana, ""), &pb03.GetAgentCardRequest{})
		if err != nil || (older.GetPreferredTransport() == "GRPC") != preferred {
			t.Errorf("preferred %v: %v, %v", preferred, older, err)
		}
	}
	for preferred, want := range map[bool]string{true: `"preferred_transport":"grpc"`, false: `"preferred_transport":"jsonrpc"`} {
		cards := agentcard.Builder{GRPC: agentcard.GRPC{Address: "grpc.example.com:443", Preferred: preferred}}
		h := surfacetest.New(t, surfacetest.Options{Default: surfacetest.Script}, func(*surfacetest.Fixture) []surface.Route { return ext.Routes(ext.Options{Cards: cards}) })
		if _, body := h.Do(t, http.MethodGet, "/agents/assistant", "", nil); !strings.Contains(body, want) {
			t.Errorf("the card of the extension surface is %s, want %s", body, want)
		}
	}
}

// TestCardReaders reads the security requirements of a card as official clients do: the parser generated from the
// Protocol Buffers, which clients for Python have, the parsers of the library for Go, and gRPC. See
// docs/decisions/card-requirements.md.
func TestCardReaders(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	ana := h.mintToken(t, "acme", "ana")
	_, body := h.Do(t, http.MethodGet, "/a2a/assistant/.well-known/agent-card.json", ana, nil)
	want := []*pb10.SecurityRequirement{{Schemes: map[string]*pb10.StringList{"bearer": {}}}}
	generated := &pb10.AgentCard{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(body), generated); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, generated.GetSecurityRequirements(), protocmp.Transform()); diff != "" {
		t.Error("the generated parser reads", diff)
	}
	card, err := pb10.NewA2AServiceClient(h.conn).GetExtendedAgentCard(withCredentials(t.Context(), ana, "assistant"), &pb10.GetExtendedAgentCardRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, card.GetSecurityRequirements(), protocmp.Transform()); diff != "" {
		t.Error("over gRPC", diff)
	}
	required := spec.SecurityRequirementsOptions{{"bearer": {}}}
	if compatible, err := a2av0.NewAgentCardParser()([]byte(body)); err != nil || !cmp.Equal(required, compatible.SecurityRequirements) {
		t.Errorf("the parser of both versions for Go reads %+v, %v", compatible, err)
	}
	// It does not read the requirements, see the decision, but everything else.
	if plain, err := clientcard.DefaultCardParser([]byte(body)); err != nil || len(plain.SupportedInterfaces) == 0 || len(plain.SecuritySchemes) != 1 {
		t.Errorf("the parser of version 1.0 for Go reads %+v, %v", plain, err)
	}
}

// TestTLS checks that a server with TLS accepts clients with TLS only.
func TestTLS(t *testing.T) {
	t.Parallel()
	site := httptest.NewTLSServer(http.NotFoundHandler())
	defer site.Close()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{TLS: &tls.Config{Certificates: site.TLS.Certificates}})
	trusted := x509.NewCertPool()
	trusted.AddCert(site.Certificate())
	ctx := withCredentials(t.Context(), h.mintToken(t, "acme", "ana"), "")
	conn := h.dialServer(t, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: trusted, ServerName: "example.com"})))
	if _, err := pb10.NewA2AServiceClient(conn).SendMessage(ctx, newSendRequest("hello")); err != nil {
		t.Errorf("over TLS: %v", err)
	}
	if _, err := pb10.NewA2AServiceClient(h.conn).SendMessage(ctx, newSendRequest("hello")); err == nil {
		t.Error("it answers without TLS as well")
	}
}
