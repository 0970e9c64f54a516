package server

import (
	"cmp"
	"net"

	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/ext"
	"stoa/authz"
)

// cards builds and signs the cards of agents.
type cards struct {
	agentcard.Builder
	// keys returns the public keys that verify signed cards; nil = cards are not signed.
	keys func() []byte
}

// newCards returns the builder of agent cards for a process whose HTTP listener has the address listens. The cards are
// signed if --sign-cards is set. The signature (A2A specification, AgentCardSignature) covers the canonical JSON of the
// card, and names the URL below the public URL that serves the verification keys. The keys are derived from the master
// keys, so that all processes sign alike.
func (s *Server) newCards(listens net.Addr) (cards, error) {
	c := cards{Builder: agentcard.Builder{GRPC: s.grpcCardOptions()}}
	if !s.Settings.Cards.Sign {
		return c, nil
	}
	signer, err := authz.NewCardSigner(s.Storage.keyring, s.publicURL(listens)+ext.CardKeysPath)
	if err != nil {
		return c, err
	}
	c.keys = signer.JWKS
	c.Sign = func(card []byte) (agentcard.Signature, error) { return signCard(signer, card) }
	return c, nil
}

// publicURL returns the URL of the process that clients use: the configured one, else that of the listener.
func (s *Server) publicURL(listens net.Addr) string {
	return cmp.Or(s.Settings.Cards.PublicURL, s.network.localURL(listens))
}

// signCard returns the signature of an agent card.
func signCard(signer *authz.CardSigner, card []byte) (agentcard.Signature, error) {
	// The signature covers the card without its signatures, in canonical JSON (A2A 1.0, 8.4.1; RFC 8785).
	payload, err := a2agrpc.CanonicalCard(card)
	if err != nil {
		return agentcard.Signature{}, err
	}
	protected, signature, err := signer.Sign(payload)
	return agentcard.Signature{Protected: protected, Signature: signature}, err
}
