// Package api is the source of documents at an address that answers with JSON, in pages. A page is a list of objects, or an
// object with a list; each object is a document.
//
// The next page is named by a field of the page (next_field, an address or with token_param a token), counted
// (page_param), or named by the page's Link header (RFC 8288). Pages end with an error where they lead in a circle.
//
// A listing remembers the ETag or the time of change of each page, and of its documents the id, the version and the title.
// The next listing asks for each page only whether it has changed; of one that has not, nothing is transferred. The
// content of an unchanged page's document is read again only if Open asks for it.
//
// Headers of the configuration, which may hold a credential, are sent to the host of the configured address only:
// neither after a redirect nor for a next page at another host.
package api

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document/source"
)

// Bounds of a listing.
const (
	maxPages     = 1000
	maxPageBytes = 4 << 20 // its values take several times as much, see estimateMemory
	// maxPageItems bounds the documents of a page.
	maxPageItems = 20_000
	// maxTotalBytes bounds all pages together.
	maxTotalBytes = 1 << 30
	// maxRemembered bounds what a listing remembers of its documents, in bytes: ids, versions, titles and addresses.
	maxRemembered = 64 << 20
	// maxTitleBytes and maxAddressBytes bound a title, which is cut, and an address; a longer one of a document is left out.
	maxTitleBytes   = 512
	maxAddressBytes = 2048
)

// Options configure a [Source].
type Options struct {
	Config *config.APISource
	// Client makes the calls; it is one of [egress.Client], which refuses private addresses and drops credentials at
	// redirects.
	Client *http.Client
	// Memory names the pool and the app that the memory of pages is reserved from; nil = no bound in addition to those of a
	// listing.
	Memory *capacity.MemoryReservation
}

// Source is an address.
type Source struct {
	config *config.APISource
	first  *url.URL
	caller caller
	memory *capacity.MemoryReservation // that of the options
	// pages are those of the latest complete listing, by address.
	pages map[string]*page
	// fetched is the page that Open read last.
	fetched fetchedPage
}

var _ source.Source = (*Source)(nil)

// New returns the source for an address. It calls nothing.
func New(opts Options) (*Source, error) {
	first, err := url.Parse(opts.Config.URL)
	if err != nil || first.Scheme != "http" && first.Scheme != "https" || first.Host == "" {
		return nil, source.PermanentErrorf("url is no address with http or https")
	}
	return &Source{config: opts.Config, first: first, memory: opts.Memory, caller: newCaller(opts.Client, opts.Config.Headers, first)}, nil
}

// Wait implements [source.Source]: an address does not report changes.
func (s *Source) Wait(context.Context) error { return errors.ErrUnsupported }

// List implements [source.Source]. The order is that of the pages.
func (s *Source) List(ctx context.Context) iter.Seq2[source.Item, error] {
	return func(yield func(source.Item, error) bool) {
		l := &listing{source: s, yield: yield, pages: map[string]*page{}, seen: map[string]bool{}, memory: s.memory.NewPart(1)}
		defer l.memory.ReleaseBytes()
		err := l.run(ctx)
		switch {
		case err == nil:
			s.pages = l.pages
		case !errors.Is(err, errStopped):
			yield(source.Item{}, err)
		}
	}
}

// errStopped reports that the caller of List wants no more documents.
var errStopped = errors.New("stopped")

// listing is one listing.
type listing struct {
	source *Source
	yield  func(source.Item, error) bool
	pages  map[string]*page
	seen   map[string]bool // ids
	bytes  int64
	held   source.Held
	// remembered is what the pages take once their content is forgotten, in bytes. It is reserved in memory until the end of
	// the listing.
	remembered int64
	memory     *capacity.MemoryReservation
	// withoutID counts the documents without an id; firstWithoutID says where the first is.
	withoutID                       int
	firstPageWithoutID, firstNumber int
}

// run lists all pages.
func (l *listing) run(ctx context.Context) error {
	s := l.source
	at := s.firstAddress()
	for number := 1; at != nil; number++ {
		if number > maxPages {
			return source.PermanentErrorf("the address has more than %d pages; ask for larger pages, or for fewer documents", maxPages)
		}
		if l.pages[at.String()] != nil {
			return source.PermanentErrorf("page %d leads back to a page before it: the pages are a circle; check pagination", number-1)
		}
		p, err := l.listPage(ctx, at, number)
		if err != nil {
			return err
		}
		if at, err = parseNext(p.next); err != nil {
			return err
		}
	}
	return l.addWithoutID()
}

// listPage reads a page and yields its documents. The page and its content are in memory until it returns.
func (l *listing) listPage(ctx context.Context, at *url.URL, number int) (*page, error) {
	memory := l.source.memory.NewPart(1)
	defer memory.ReleaseBytes()
	p, err := l.source.readPage(ctx, memory, at, number)
	if err != nil {
		return nil, err
	}
	l.pages[at.String()] = p
	if l.bytes += p.bytes; l.bytes > maxTotalBytes {
		return nil, source.PermanentErrorf("the pages have more than %d bytes together", int64(maxTotalBytes))
	}
	remembered := p.rememberedBytes()
	if l.remembered += remembered; l.remembered > maxRemembered {
		return nil, source.PermanentErrorf("the ids, titles and addresses of the documents have more than %d bytes together; ask for fewer documents", maxRemembered)
	}
	if err := reserve(ctx, l.memory, remembered); err != nil {
		return nil, describePage(number, err)
	}
	repeated, err := l.addPage(p, number)
	if err != nil {
		return nil, err
	}
	if repeated && p.next != "" {
		return nil, source.PermanentErrorf("page %d has only documents of the pages before it: the address does not understand how pages are asked for; check pagination", number)
	}
	p.forgetContent()
	return p, nil
}

// addPage yields the documents of a page, without those of earlier pages: pages that are counted move when a document is
// added meanwhile. It reports whether the page has documents, all of them seen before.
func (l *listing) addPage(p *page, number int) (repeated bool, err error) {
	repeated = len(p.records) > 0
	for i := range p.records {
		r := &p.records[i]
		if r.id == "" {
			if l.withoutID++; l.withoutID == 1 {
				l.firstPageWithoutID, l.firstNumber = number, i+1
			}
			repeated = false
			continue
		}
		if l.seen[r.id] {
			continue
		}
		l.seen[r.id], repeated = true, false
		if len(l.seen) > source.MaxDocuments {
			return false, source.PermanentErrorf("the address lists more than %d documents; ask for fewer", source.MaxDocuments)
		}
		if !l.yield(l.source.newItem(p, r, &l.held), nil) {
			return false, errStopped
		}
	}
	return repeated, nil
}

// addWithoutID yields a document that fails in place of those without an id. If there is no other document, the setting is
// wrong and not the documents.
func (l *listing) addWithoutID() error {
	field := l.source.config.IDField
	switch {
	case l.withoutID == 0:
		return nil
	case len(l.seen) == 0:
		return source.PermanentErrorf("none of the %d documents has a text or a number in the field %s; set id_field to the field that names a document", l.withoutID, field)
	}
	item := source.NewFailedItem("(documents without id)", source.PermanentErrorf("%d documents have no text or number in the field %s, the first is number %d of page %d; give them one",
		l.withoutID, field, l.firstNumber, l.firstPageWithoutID))
	if !l.yield(item, nil) {
		return errStopped
	}
	return nil
}

// newItem returns the document of a record.
func (s *Source) newItem(p *page, r *record, held *source.Held) source.Item {
	if r.failed != nil {
		item := source.NewFailedItem(r.id, r.failed)
		item.Title, item.URL = r.title, r.url
		return item
	}
	id := r.id
	read := func(ctx context.Context) (string, error) { return s.fetchContent(ctx, p.address, id) }
	item := source.Item{ID: id, Version: r.version, Title: r.title, URL: r.url, MediaType: r.mediaType, Bytes: r.bytes, Open: source.NewOpen(read)}
	if r.hasText {
		item.Open = held.NewOpen(r.text, read)
	}
	return item
}

// firstAddress returns the address of the first page.
func (s *Source) firstAddress() *url.URL {
	if p := s.config.Pagination; p != nil && p.PageParam != "" {
		return withParameter(s.first, p.PageParam, strconv.Itoa(p.FirstPage))
	}
	return s.first
}

// withParameter returns an address with a parameter in place of what it has for it.
func withParameter(at *url.URL, name, value string) *url.URL {
	out := *at
	query := out.Query()
	query.Set(name, value)
	out.RawQuery = query.Encode()
	return &out
}

// findNext returns the address of the page after one, "" at the end.
func (s *Source) findNext(at *url.URL, body any, header http.Header, documents int) (string, error) {
	p := s.config.Pagination
	switch {
	case p != nil && p.PageParam != "":
		if documents == 0 {
			return "", nil
		}
		n, err := strconv.Atoi(at.Query().Get(p.PageParam))
		if err != nil {
			return "", source.Errorf("the number of the page is lost")
		}
		return withParameter(at, p.PageParam, strconv.Itoa(n+1)).String(), nil
	case p != nil:
		next := lookUp(body, p.NextField)
		text, ok := textOf(next)
		switch {
		case next == nil || next == false || ok && text == "":
			return "", nil
		case !ok:
			return "", source.PermanentErrorf("the field %s is no text and no number; set next_field to the field with the next page", p.NextField)
		case len(text) > maxAddressBytes:
			return "", source.PermanentErrorf("the field %s has more than %d bytes; set next_field to the field with the next page", p.NextField, maxAddressBytes)
		case p.TokenParam != "":
			return withParameter(s.first, p.TokenParam, text).String(), nil
		}
		return resolve(at, text)
	}
	for _, link := range header.Values("Link") {
		if next := findNextLink(link); next != "" {
			return resolve(at, next)
		}
	}
	return "", nil
}

// resolve returns the absolute address of a reference on the page at an address.
func resolve(at *url.URL, reference string) (string, error) {
	next, err := at.Parse(reference)
	if err == nil && len(next.String()) > maxAddressBytes {
		return "", source.PermanentErrorf("the address of the next page has more than %d bytes", maxAddressBytes)
	}
	if err != nil || next.Scheme != "http" && next.Scheme != "https" || next.Host == "" {
		return "", source.PermanentErrorf("the next page has no address with http or https; if next_field holds a token, set token_param")
	}
	next.Fragment = ""
	return next.String(), nil
}

// parseNext returns the address that findNext found, nil at the end.
func parseNext(next string) (*url.URL, error) {
	if next == "" {
		return nil, nil
	}
	at, err := url.Parse(next)
	if err != nil {
		return nil, source.PermanentErrorf("the next page has no address with http or https")
	}
	return at, nil
}

// findNextLink returns the target with rel="next" in a Link header (RFC 8288, section 3), "" if there is none. Commas and
// semicolons stand inside <> and quotes, too.
func findNextLink(header string) string {
	for header != "" {
		_, after, ok := strings.Cut(header, "<")
		if !ok {
			return ""
		}
		target, after, ok := strings.Cut(after, ">")
		if !ok {
			return ""
		}
		quoted := false
		end := strings.IndexFunc(after, func(r rune) bool {
			if r == '"' {
				quoted = !quoted
			}
			return r == ',' && !quoted
		})
		parameters := after
		header = ""
		if end >= 0 {
			parameters, header = after[:end], after[end+1:]
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if strings.EqualFold(strings.TrimSpace(name), "rel") {
				for _, word := range strings.Fields(strings.Trim(strings.TrimSpace(value), `"`)) {
					if strings.EqualFold(word, "next") {
						return target
					}
				}
			}
		}
	}
	return ""
}

// readPage reads a page, or returns that of the listing before if it has not changed. memory reserves what it takes.
func (s *Source) readPage(ctx context.Context, memory *capacity.MemoryReservation, at *url.URL, number int) (*page, error) {
	before := s.pages[at.String()]
	resp, err := s.caller.getPage(ctx, memory, at, before)
	if err != nil {
		return nil, describePage(number, err)
	}
	if resp.unchanged {
		return before, nil
	}
	p, err := s.newPage(ctx, memory, at, resp)
	if err != nil {
		return nil, describePage(number, err)
	}
	return p, nil
}

// describePage adds the number of the page to an error.
func describePage(number int, err error) error {
	var known *source.Error
	if !errors.As(err, &known) {
		known = source.Errorf("%s", "it cannot be read")
	}
	return &source.Error{
		Message:   "page " + strconv.Itoa(number) + ": " + known.Message + "; the documents stay as they are",
		Permanent: known.Permanent, RetryAfter: known.RetryAfter,
	}
}
