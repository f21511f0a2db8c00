package main

import (
	"embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
)

//go:embed *.go
var sources embed.FS

// linesOfUse counts the lines of code in which a peer is used.
func linesOfUse(p peer) (int, error) {
	file := p.name + ".go"
	source, err := sources.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("count the lines of %s: %w", file, err)
	}
	return linesOf(file, source)
}

// linesOf counts the lines of code in a file, without its imports, comments and blank lines.
func linesOf(file string, source []byte) (int, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.ImportsOnly)
	if err != nil {
		return 0, fmt.Errorf("count the lines of %s: %w", file, err)
	}
	began := afterImports(parsed)
	lines := map[int]bool{}
	var s scanner.Scanner
	f := files.AddFile(file, -1, len(source))
	s.Init(f, source, nil, 0)
	for {
		at, t, text := s.Scan()
		if t == token.EOF {
			return len(lines), nil
		}
		if f.Offset(at) >= began && (t != token.SEMICOLON || text == ";") { // the others are line ends
			lines[f.Line(at)] = true
		}
	}
}

// afterImports is the offset at which the rest begins.
func afterImports(file *ast.File) int {
	end := file.Name.End()
	for _, d := range file.Decls {
		end = max(end, d.End())
	}
	return int(end - file.FileStart)
}
