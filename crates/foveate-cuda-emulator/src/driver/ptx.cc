#include "driver/ptx.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <stdexcept>

namespace {

using Tokens = std::vector<std::string>;

std::string without_comments(const std::string& text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        if (text.compare(at, 2, "//") == 0) {
            at = std::min(text.find('\n', at), text.size());
        } else if (text.compare(at, 2, "/*") == 0) {
            size_t end = text.find("*/", at + 2);
            at = end == std::string::npos ? text.size() : end + 2;
        } else {
            out += text[at++];
        }
    }
    return out;
}

// Words (with their leading dot) and single punctuation marks.
Tokens tokens_of(const std::string& text) {
    auto in_word = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '$' || c == '%'; };
    Tokens tokens;
    for (size_t at = 0; at < text.size();) {
        if (std::isspace(static_cast<unsigned char>(text[at]))) {
            at++;
        } else {
            size_t end = at + 1;
            if (in_word(text[at])) {
                while (end < text.size() && in_word(text[end])) end++;
            }
            tokens.push_back(text.substr(at, end - at));
            at = end;
        }
    }
    return tokens;
}

class Parser {
public:
    explicit Parser(Tokens tokens) : tokens_(std::move(tokens)) {}

    Ptx parse() {
        Ptx ptx;
        while (at_ < tokens_.size()) {
            std::string token = next();
            if (token == ".version") {
                ptx.version = version(next());
            } else if (token == ".target") {
                ptx.target = target(next());
            } else if (token == ".entry") {
                std::string name = next();
                ptx.entries[name] = entry();
            } else if (token == ".func") {
                skip_function();
            } else if (token == ".shared") {
                module_shared();
            }
        }
        if (ptx.version == 0 || ptx.target == 0) throw std::invalid_argument("no .version or no .target");
        return ptx;
    }

private:
    const std::string& peek() const {
        if (at_ == tokens_.size()) throw std::invalid_argument("unexpected end");
        return tokens_[at_];
    }
    std::string next() {
        std::string token = peek();
        at_++;
        return token;
    }

    static int version(const std::string& text) {
        size_t dot = text.find('.');
        if (dot == std::string::npos) throw std::invalid_argument(".version " + text);
        return std::atoi(text.c_str()) * 10 + std::atoi(text.c_str() + dot + 1);
    }
    static int target(const std::string& text) {
        if (text.compare(0, 3, "sm_") != 0) throw std::invalid_argument(".target " + text);
        return std::atoi(text.c_str() + 3);
    }

    // Bytes of `.u64`, `.f32`, `.b8`…; 0 for other types.
    static size_t bytes_of_type(const std::string& token) {
        bool typed = token.size() > 2 && token[0] == '.' && std::string("usbf").find(token[1]) != std::string::npos;
        if (!typed || !std::all_of(token.begin() + 2, token.end(), [](unsigned char c) { return std::isdigit(c); }))
            return 0;
        return static_cast<size_t>(std::atoi(token.c_str() + 2)) / 8;
    }

    // Parses a variable up to one of `ends`, which is not consumed; returns its name and its bytes.
    std::pair<std::string, size_t> variable(const std::string& ends) {
        std::string name;
        size_t bytes = 0;
        while (ends.find(peek()) == std::string::npos) {
            std::string token = next();
            if (token == ".align") {
                next();
            } else if (token == "[") {
                // `[]` is dynamic shared memory, which the launch sizes.
                bytes *= peek() == "]" ? 0 : std::strtoull(next().c_str(), nullptr, 0);
                if (next() != "]") throw std::invalid_argument("array of " + name);
            } else if (size_t element = bytes_of_type(token)) {
                bytes = element;
            } else if (token[0] != '.') {
                name = token;
            }
        }
        return {name, bytes};
    }

    std::vector<size_t> parameters() {
        std::vector<size_t> sizes;
        if (peek() != "(") return sizes;
        next();
        while (peek() != ")") {
            if (next() != ".param") throw std::invalid_argument("a parameter without .param");
            auto [name, bytes] = variable(",)");
            if (bytes == 0) throw std::invalid_argument("parameter " + name + " without a size");
            sizes.push_back(bytes);
            if (peek() == ",") next();
        }
        next();
        return sizes;
    }

    Entry entry() {
        Entry entry;
        entry.parameters = parameters();
        while (peek() != "{" && peek() != ";") {
            std::string directive = next();
            if (directive == ".maxntid" || directive == ".reqntid") entry.max_threads = extent();
        }
        if (peek() == "{") body(&entry);
        return entry;
    }

    // The product of up to three numbers separated by commas.
    unsigned extent() {
        unsigned product = static_cast<unsigned>(std::atoi(next().c_str()));
        while (peek() == ",") {
            next();
            product *= static_cast<unsigned>(std::atoi(next().c_str()));
        }
        return product;
    }

    void body(Entry* entry) {
        int depth = 0;
        std::set<std::string> counted;
        do {
            std::string token = next();
            if (token == "{") depth++;
            if (token == "}") depth--;
            if (token == ".shared" && entry) entry->static_shared += variable(";").second;
            auto shared = shared_.find(token);
            bool first = shared != shared_.end() && counted.insert(token).second;
            if (first && entry) entry->static_shared += shared->second;
        } while (depth > 0);
    }

    void skip_function() {
        while (peek() != "{" && peek() != ";") next();
        if (peek() == "{") body(nullptr);
    }

    // Parses a shared variable outside of kernels, which belongs to every kernel that names it.
    void module_shared() {
        auto [name, bytes] = variable(";");
        if (bytes > 0) shared_[name] = bytes;
    }

    Tokens tokens_;
    size_t at_ = 0;
    std::map<std::string, size_t> shared_;
};

}  // namespace

Ptx parse_ptx(const std::string& text) { return Parser(tokens_of(without_comments(text))).parse(); }
