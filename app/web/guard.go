package web

import (
	"net"
	"net/http"
	"net/netip"
)

// guard lets requests of this page pass, and of nobody else: no other site may start a run, read one, or show the page in a
// frame. A site whose name an attacker makes point here (DNS rebinding) has that name in Host, and is refused.
func guard(next http.Handler, at net.Addr) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	next = sameOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store") // the next program may have another page
		origin := r.Header.Get("Origin")
		switch {
		case !ours(r.Host, at):
			http.Error(w, "this page is served under its own address only", http.StatusForbidden)
		case origin != "" && origin != "http://"+r.Host:
			http.Error(w, "this page answers itself only, and no other site", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ours reports whether a Host names the address at which the page is served. Its port is not looked at: a tunnel may have
// another. On a page that is open to the network any address will do, but no name.
func ours(host string, at net.Addr) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	if len(host) > 2 && host[0] == '[' {
		host = host[1 : len(host)-1]
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	served, err := netip.ParseAddrPort(at.String())
	return err == nil && (address.IsLoopback() || served.Addr().IsUnspecified() || served.Addr().Unmap() == address.Unmap())
}
