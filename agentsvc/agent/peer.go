package agent

import (
	"context"
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

const (
	maxCard = 1 << 20         // bytes of a card
	cardAge = 5 * time.Minute // after which it is fetched again
)

// peer is the server of a remote agent: how to reach it stands in its card.
type peer struct {
	name  string
	card  string // its address, "" where it is given
	http  *http.Client
	known *known
}

// known is the card as it was last read, and the client made of it.
type known struct {
	mu     sync.Mutex
	client *a2aclient.Client
	until  time.Time // zero = for good
}

func newPeer(o RemoteOptions) (peer, error) {
	p := peer{name: o.Name, known: &known{}}
	trusted := map[string]bool{}
	switch {
	case o.Card != nil:
		card, err := a2av0.NewAgentCardParser()(o.Card)
		if err != nil {
			return p, agentsvc.Invalid("agent_card_file", "is no agent card")
		}
		for _, i := range card.SupportedInterfaces {
			trusted[origin(i.URL)] = true
		}
		p.http = withHeaders(o.HTTP, o.Headers, trusted)
		p.known.client, err = p.dial(context.Background(), card)
		return p, err
	case o.CardURL != "":
		p.card = o.CardURL
	default:
		p.card = strings.TrimRight(o.URL, "/") + "/.well-known/agent-card.json"
	}
	for _, where := range []string{o.URL, p.card} {
		if where == "" {
			continue
		}
		if origin(where) == "" {
			return p, agentsvc.Invalid("url", "must be an http or https address")
		}
		trusted[origin(where)] = true
	}
	p.http = withHeaders(o.HTTP, o.Headers, trusted)
	return p, nil
}

// origin is the scheme and host of an address, "" if it is not http or https.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// connect returns a client for the server, made of the card it shows at present.
func (p peer) connect(ctx context.Context) (*a2aclient.Client, error) {
	p.known.mu.Lock()
	client, until := p.known.client, p.known.until
	p.known.mu.Unlock()
	if client != nil && (until.IsZero() || time.Now().Before(until)) {
		return client, nil
	}
	card, err := p.fetch(ctx)
	if err != nil {
		return nil, err
	}
	if client, err = p.dial(ctx, card); err != nil {
		return nil, err
	}
	p.known.mu.Lock()
	defer p.known.mu.Unlock()
	p.known.client, p.known.until = client, time.Now().Add(cardAge)
	return client, nil
}

func (p peer) fetch(ctx context.Context) (*a2a.AgentCard, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.card, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, agentsvc.Invalid("", "the card of the remote agent %s could not be read: its server answered %d", p.name, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxCard+1))
	if err != nil {
		return nil, err
	}
	card, err := a2av0.NewAgentCardParser()(body)
	if err != nil || len(body) > maxCard {
		return nil, agentsvc.Invalid("", "the card of the remote agent %s could not be read: it is no agent card", p.name)
	}
	return card, nil
}

// dial makes a client that speaks to the server in the first way of the card that Stoa knows.
func (p peer) dial(ctx context.Context, card *a2a.AgentCard) (*a2aclient.Client, error) {
	client, err := a2aclient.NewFactory(
		a2aclient.WithDefaultsDisabled(),
		a2aclient.WithJSONRPCTransport(p.http),
		a2aclient.WithRESTTransport(p.http),
		a2aclient.WithCompatTransport(a2av0.Version, a2a.TransportProtocolJSONRPC, a2av0.NewJSONRPCTransportFactory(a2av0.JSONRPCTransportConfig{Client: p.http})),
		a2aclient.WithCompatTransport(a2av0.Version, a2a.TransportProtocolHTTPJSON, a2av0.NewRESTTransportFactory(a2av0.RESTTransportConfig{Client: p.http})),
	).CreateFromCard(ctx, card)
	if err != nil {
		return nil, agentsvc.Invalid("", "the card of the remote agent %s offers no way to call it that is known here: A2A 1.0 or 0.3 over JSON-RPC or REST", p.name)
	}
	return client, nil
}

// withHeaders returns a client that sends headers to the trusted origins: the card of a server could name any other.
func withHeaders(c *http.Client, headers map[string]string, trusted map[string]bool) *http.Client {
	if c == nil {
		c = http.DefaultClient
	}
	out := *c
	out.Timeout = 0 // the turn has one
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	out.Transport = headed{next, headers, trusted}
	return &out
}

type headed struct {
	next    http.RoundTripper
	headers map[string]string
	trusted map[string]bool
}

func (h headed) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(h.headers) > 0 && h.trusted[strings.ToLower(req.URL.Scheme+"://"+req.URL.Host)] {
		req = req.Clone(req.Context())
		for name, value := range h.headers {
			req.Header.Set(name, value)
		}
	}
	return h.next.RoundTrip(req)
}
