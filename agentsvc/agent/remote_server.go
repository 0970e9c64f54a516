package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"stoa/agentsvc"
)

// Bounds of a fetched agent card.
const (
	// maxCardBytes is the largest card that is read.
	maxCardBytes = 1 << 20
	// cardTTL is how long a fetched card and the client made from it are used.
	cardTTL = 5 * time.Minute
)

// remoteServer is the server of a remote agent. Its card says how to call it; it is read-only except for the cache.
type remoteServer struct {
	name string
	// cardURL is where the card is fetched; "" if the card is configured.
	cardURL string
	// httpClient adds the configured headers, see newRemoteClient.
	httpClient *http.Client
	cache      *clientCache
}

// clientCache is the client made from the card that was fetched last.
type clientCache struct {
	// mu guards client and expiresAt. It is not held while a card is fetched: two turns may fetch it at the same time.
	mu     sync.Mutex
	client *a2aclient.Client
	// expiresAt is when the card is fetched again; zero: never, because the card is configured.
	expiresAt time.Time
}

// newRemoteServer checks the addresses of o and returns the server. The origins that o itself names (or, with a
// configured card alone, the card's interfaces) are trusted with the headers.
func newRemoteServer(o RemoteOptions) (remoteServer, error) {
	p := remoteServer{name: o.Name, cache: &clientCache{}}
	errAddress := agentsvc.NewInvalidError("url", "must be an http or https address")
	trusted := map[string]bool{}
	for _, address := range []string{o.URL, o.CardURL} {
		if address == "" {
			continue
		}
		if parseOrigin(address) == "" {
			return p, errAddress
		}
		trusted[parseOrigin(address)] = true
	}
	if o.Card == nil {
		if len(trusted) == 0 {
			return p, errAddress
		}
		p.cardURL = cmp.Or(o.CardURL, strings.TrimRight(o.URL, "/")+"/.well-known/agent-card.json")
		p.httpClient = newRemoteClient(o, trusted)
		return p, nil
	}
	card, err := parseCard(o.Card)
	if err != nil {
		return p, agentsvc.NewInvalidError("agent_card_file", "is no agent card")
	}
	if len(trusted) == 0 {
		for _, i := range card.SupportedInterfaces {
			trusted[parseOrigin(i.URL)] = true
		}
	}
	p.httpClient = newRemoteClient(o, trusted)
	p.cache.client, err = p.newClient(context.Background(), card)
	return p, err
}

// parseOrigin returns the scheme and host of an address in lower case, "" if it is not http or https.
func parseOrigin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// loadClient returns the cached client, or fetches the card and makes a new one if the cached one has expired.
func (s remoteServer) loadClient(ctx context.Context) (*a2aclient.Client, error) {
	s.cache.mu.Lock()
	client, until := s.cache.client, s.cache.expiresAt
	s.cache.mu.Unlock()
	if client != nil && (until.IsZero() || time.Now().Before(until)) {
		return client, nil
	}
	card, err := s.fetchCard(ctx)
	if err != nil {
		return nil, err
	}
	if client, err = s.newClient(ctx, card); err != nil {
		return nil, err
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.client, s.cache.expiresAt = client, time.Now().Add(cardTTL)
	return client, nil
}

// fetchCard fetches and parses the card, in the A2A 1.0 or the 0.3 format. The error does not quote the server's body.
func (s remoteServer) fetchCard(ctx context.Context) (*a2a.AgentCard, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cardURL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, agentsvc.NewInvalidError("", "the card of the remote agent %s could not be read: its server answered %d", s.name, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxCardBytes+1))
	if err != nil {
		return nil, err
	}
	card, err := parseCard(body)
	if err != nil || len(body) > maxCardBytes {
		return nil, agentsvc.NewInvalidError("", "the card of the remote agent %s could not be read: it is no agent card", s.name)
	}
	return card, nil
}

// parseCard parses a card in the format of A2A 1.0 or 0.3. The library cannot read the security requirements of 1.0 in the
// form of its Protocol Buffers, in which other servers write them. They are removed: remote agents get the headers of
// their configuration.
func parseCard(raw []byte) (*a2a.AgentCard, error) {
	const requirements = "securityRequirements"
	var card map[string]json.RawMessage
	if err := json.Unmarshal(raw, &card); err != nil {
		return nil, err
	}
	delete(card, requirements)
	addInterface(card)
	var skills []map[string]json.RawMessage
	if json.Unmarshal(card["skills"], &skills) == nil {
		for _, s := range skills {
			delete(s, requirements)
		}
		card["skills"], _ = json.Marshal(skills)
	}
	raw, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	return a2av0.NewAgentCardParser()(raw)
}

// addInterface gives a card in the form of Stoa's own cards (url, protocol_version and preferred_transport) the list of
// interfaces of A2A 1.0, or the names of A2A 0.3. A card that has either already is left as it is.
func addInterface(card map[string]json.RawMessage) {
	for _, name := range []string{"supportedInterfaces", "additionalInterfaces", "protocolVersion", "preferredTransport"} {
		if card[name] != nil {
			return
		}
	}
	var address, version, transport string
	if json.Unmarshal(card["url"], &address) != nil || json.Unmarshal(card["protocol_version"], &version) != nil {
		return
	}
	_ = json.Unmarshal(card["preferred_transport"], &transport) // without one it is JSON-RPC
	bindings := map[string]a2a.TransportProtocol{
		"": a2a.TransportProtocolJSONRPC, "jsonrpc": a2a.TransportProtocolJSONRPC, "rest": a2a.TransportProtocolHTTPJSON, "http+json": a2a.TransportProtocolHTTPJSON,
	}
	binding := bindings[strings.ToLower(transport)]
	if binding == "" {
		return
	}
	if !strings.HasPrefix(version, "1.") {
		card["protocolVersion"] = card["protocol_version"]
		card["preferredTransport"], _ = json.Marshal(binding)
		return
	}
	card["supportedInterfaces"], _ = json.Marshal([]map[string]any{{"url": address, "protocolBinding": binding, "protocolVersion": a2a.Version}})
	// The parser reads a card with a url as one of version 0.3.
	delete(card, "url")
}

// newClient returns a client for the first interface of the card that Stoa supports. The defaults of the library are
// off, because they would bring transports with an HTTP client that does not enforce the egress rules.
func (s remoteServer) newClient(ctx context.Context, card *a2a.AgentCard) (*a2aclient.Client, error) {
	client, err := a2aclient.NewFactory(
		a2aclient.WithDefaultsDisabled(),
		a2aclient.WithJSONRPCTransport(s.httpClient),
		a2aclient.WithRESTTransport(s.httpClient),
		a2aclient.WithCompatTransport(a2av0.Version, a2a.TransportProtocolJSONRPC, a2av0.NewJSONRPCTransportFactory(a2av0.JSONRPCTransportConfig{Client: s.httpClient})),
		a2aclient.WithCompatTransport(a2av0.Version, a2a.TransportProtocolHTTPJSON, a2av0.NewRESTTransportFactory(a2av0.RESTTransportConfig{Client: s.httpClient})),
	).CreateFromCard(ctx, card)
	if err != nil {
		return nil, agentsvc.NewInvalidError("", "the card of the remote agent %s offers no supported interface: A2A 1.0 or 0.3 over JSON-RPC or REST", s.name)
	}
	return client, nil
}

// newRemoteClient returns a copy of o.HTTP that adds the headers to requests to trusted origins, bounds the responses, and
// returns a [*remoteStatusError] for some statuses. A fetched card may name interfaces on any host; those must not receive the headers.
func newRemoteClient(o RemoteOptions, trusted map[string]bool) *http.Client {
	c := o.HTTP
	if c == nil {
		c = http.DefaultClient
	}
	out := *c
	out.Timeout = 0 // the turn has its own, and a stream may last longer than one request should
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	limit := int64(newReceivedAnswer(o).maxText) * fileFactor * responseFactor
	out.Transport = statusTransport{limitTransport{headerTransport{next, o.Headers, trusted}, limit}}
	return &out
}

// headerTransport is the transport of newRemoteClient. It is read-only and safe for concurrent use.
type headerTransport struct {
	next    http.RoundTripper
	headers map[string]string
	trusted map[string]bool
}

// RoundTrip implements [http.RoundTripper]. It sends a copy of req, which it may not change.
func (h headerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(h.headers) > 0 && h.trusted[strings.ToLower(req.URL.Scheme+"://"+req.URL.Host)] {
		req = req.Clone(req.Context())
		for name, value := range h.headers {
			req.Header.Set(name, value)
		}
	}
	return h.next.RoundTrip(req)
}
