package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/document/source"
)

// page is a page that was read.
type page struct {
	address            *url.URL
	etag, lastModified string // as the server sent them
	next               string // the address of the next page, "" at the end
	bytes              int64
	records            []record
}

// record is a document of a page.
type record struct {
	id                             string // "" if it has none
	version, title, url, mediaType string
	bytes                          int64
	// failed is why the document cannot be read; nil if it can.
	failed *source.Error
	// text is the content, until the page has been listed.
	text    string
	hasText bool
}

// forgetContent drops the content of the documents. What is left is remembered until the next listing.
func (p *page) forgetContent() {
	for i := range p.records {
		p.records[i].text, p.records[i].hasText = "", false
	}
}

// recordBytes is what a record takes besides its texts, in bytes, with its entry among the ids of the listing.
const recordBytes = 240

// rememberedBytes returns what the page takes once its content is forgotten.
func (p *page) rememberedBytes() int64 {
	n := len(p.etag) + len(p.lastModified) + len(p.next) + recordBytes
	for i := range p.records {
		r := &p.records[i]
		n += recordBytes + len(r.id) + len(r.version) + len(r.title) + len(r.url)
	}
	return int64(n)
}

// estimateMemory returns what the values of a JSON text take in memory, in bytes: a value of some bytes, and an object of
// two characters a multiple of them.
func estimateMemory(text []byte) int64 {
	const objectBytes, valueBytes = 400, 64
	n, inText := int64(len(text)), false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case inText:
		case c == '{':
			n += objectBytes
		case c == ',' || c == '[' || c == ':':
			n += valueBytes
		}
	}
	return n
}

// newPage reads the answer for an address. memory reserves what its values take.
func (s *Source) newPage(ctx context.Context, memory *capacity.MemoryReservation, at *url.URL, resp *response) (*page, error) {
	if err := reserve(ctx, memory, estimateMemory(resp.body)); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(resp.body))
	d.UseNumber() // so that large numbers stay what they are
	var body any
	if err := d.Decode(&body); err != nil || d.More() {
		return nil, source.PermanentErrorf("%s", describeNoJSON(resp))
	}
	items, err := s.findItems(body)
	if err != nil {
		return nil, err
	}
	if len(items) > maxPageItems {
		return nil, source.PermanentErrorf("it has %d documents, more than %d; ask for smaller pages", len(items), maxPageItems)
	}
	p := &page{
		address: at, etag: shortHeader(resp.header, "ETag"), lastModified: shortHeader(resp.header, "Last-Modified"), bytes: int64(len(resp.body)),
		records: make([]record, len(items)),
	}
	for i, item := range items {
		p.records[i] = s.newRecord(at, item)
	}
	p.next, err = s.findNext(at, body, resp.header, len(items))
	return p, err
}

// shortHeader returns a value of a header, "" for a longer one than servers send: it is remembered for each page.
func shortHeader(header http.Header, name string) string {
	const maxBytes = 512
	if value := header.Get(name); len(value) <= maxBytes {
		return value
	}
	return ""
}

// describeNoJSON says what an answer is that is no JSON, as far as its header and its first byte show it.
func describeNoJSON(resp *response) string {
	text := bytes.TrimLeft(bytes.TrimPrefix(resp.body, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case resp.isHTML(), bytes.HasPrefix(text, []byte("<")):
		return "the address answers with HTML or XML and not with JSON; check url, and whether it demands a login"
	case len(text) == 0:
		return "the answer is empty and not JSON"
	}
	return "the answer is no JSON, or breaks off"
}

// findItems returns the list of documents in the body of a page.
func (s *Source) findItems(body any) ([]any, error) {
	if field := s.config.ItemsField; field != "" {
		switch found := lookUp(body, field).(type) {
		case []any:
			return found, nil
		case nil:
			return nil, source.PermanentErrorf("there is no field %s, which items_field names; an empty page has an empty list", field)
		}
		return nil, source.PermanentErrorf("the field %s, which items_field names, is no list", field)
	}
	switch body := body.(type) {
	case []any:
		return body, nil
	case map[string]any:
		var lists [][]any
		for _, value := range body {
			if list, ok := value.([]any); ok {
				lists = append(lists, list)
			}
		}
		if len(lists) == 1 {
			return lists[0], nil
		}
		return nil, source.PermanentErrorf("the answer has %d fields with a list; set items_field to the one with the documents", len(lists))
	}
	return nil, source.PermanentErrorf("the answer is neither a list nor an object with one")
}

// newRecord returns the document of an object. Its title is the field title or name, its address the field url.
func (s *Source) newRecord(at *url.URL, item any) record {
	var r record
	r.id, _ = textOf(lookUp(item, s.config.IDField))
	if r.id == "" {
		return record{}
	}
	// What is cut is copied, since a part of a text keeps all of it in memory.
	r.title = firstText(item, "title", "name")
	if len(r.title) > maxTitleBytes {
		r.title = strings.Clone(strings.ToValidUTF8(r.title[:maxTitleBytes], ""))
	}
	if link := firstText(item, "url"); link != "" && len(link) <= maxAddressBytes {
		if parsed, err := at.Parse(link); err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") {
			if r.url = parsed.String(); len(r.url) > maxAddressBytes {
				r.url = ""
			}
		}
	}
	if len(r.id) > source.MaxIDBytes {
		r.failed = source.PermanentErrorf("the field %s has more than %d bytes", s.config.IDField, source.MaxIDBytes)
		r.id = source.ShortenID(r.id)
		return r
	}
	if !source.IsPrintable(r.id) {
		r.failed = source.PermanentErrorf("the field %s has a control character, a line break or a mark of the direction of writing", s.config.IDField)
		r.id = source.ShortenID(r.id)
		return r
	}
	content := item
	if s.config.ContentField != "" {
		content = lookUp(item, s.config.ContentField)
	}
	switch content := content.(type) {
	case nil:
		r.failed = source.PermanentErrorf("the document has no field %s, which content_field names", s.config.ContentField)
		return r
	case string:
		r.text, r.mediaType = content, "text/plain"
		if strings.HasPrefix(http.DetectContentType([]byte(content)), "text/html") {
			r.mediaType = "text/html"
		}
	default:
		// Values come from a JSON decoder, so that they can be encoded.
		text, _ := json.MarshalIndent(content, "", "  ")
		r.text, r.mediaType = string(text), "application/json"
	}
	r.hasText, r.bytes = true, int64(len(r.text))
	r.version = source.Version(r.title, r.url, r.mediaType, r.text)
	return r
}

// lookUp returns the value at a path of names with dots between them, nil if there is none. A name with a dot is found,
// too, where it stands at the end of the path.
func lookUp(value any, field string) any {
	for {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		if found, ok := object[field]; ok {
			return found
		}
		name, remainder, nested := strings.Cut(field, ".")
		if !nested {
			return nil
		}
		value, field = object[name], remainder
	}
}

// textOf returns a text or a number as text.
func textOf(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	}
	return "", false
}

// firstText returns the first of fields that is a text with something in it.
func firstText(item any, fields ...string) string {
	for _, field := range fields {
		if text, ok := lookUp(item, field).(string); ok && strings.TrimSpace(text) != "" {
			return strings.Clone(strings.TrimSpace(text)) // a part of a text keeps all of it in memory
		}
	}
	return ""
}

// fetchedLifetime is how long the content of a page that was read for Open is used for other documents of the page.
const fetchedLifetime = time.Minute

// fetchedPage is a page that Open read again, so that the documents of an unchanged page cost one call together. Open may
// be called concurrently.
type fetchedPage struct {
	mu      sync.Mutex
	address string
	at      time.Time
	content map[string]string // by id
}

// fetchContent returns the content of a document of an unchanged page.
func (s *Source) fetchContent(ctx context.Context, at *url.URL, id string) (string, error) {
	f := &s.fetched
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.address != at.String() || time.Since(f.at) > fetchedLifetime {
		memory := s.memory.NewPart(1)
		defer memory.ReleaseBytes()
		f.address, f.content = "", nil // so that two pages are not in memory
		resp, err := s.caller.getPage(ctx, memory, at, nil)
		if err != nil {
			return "", err
		}
		p, err := s.newPage(ctx, memory, at, resp)
		if err != nil {
			return "", err
		}
		f.address, f.at, f.content = at.String(), time.Now(), map[string]string{}
		for _, r := range p.records {
			if r.hasText {
				f.content[r.id] = r.text
			}
		}
	}
	text, ok := f.content[id]
	if !ok {
		return "", source.Errorf("the document is no longer on its page")
	}
	return text, nil
}
