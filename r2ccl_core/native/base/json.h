// Json: builds one JSON text. It writes commas and escapes; the caller is responsible for nesting.
#ifndef R2CCL_BASE_JSON_H_
#define R2CCL_BASE_JSON_H_

#include <charconv>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

namespace r2ccl {

class Json {
 public:
  // A value's place is behind a Key in an object, anywhere in an array.
  void Open(char bracket) {  // '{' or '['
    Separate();
    text_ += bracket;
    fresh_ = true;
  }
  void Close(char bracket) {
    text_ += bracket;
    fresh_ = false;
  }
  Json& Key(std::string_view name) {
    Text(name);
    text_ += ':';
    fresh_ = true;
    return *this;
  }

  void Text(std::string_view value) {
    Separate();
    text_ += '"';
    for (char c : value) Escape(c);
    text_ += '"';
  }
  void Value(std::string_view value) { Text(value); }
  void Value(const std::string& value) { Text(value); }
  void Value(const char* value) { Text(value); }
  void Value(bool value) {
    Separate();
    text_ += value ? "true" : "false";
  }
  template <typename T>
    requires(std::integral<T> || std::floating_point<T>)
  void Value(T value) {
    char digits[40];
    Separate();
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  template <typename T>
  void Field(std::string_view name, const T& value) {
    Key(name).Value(value);
  }

  const std::string& text() const { return text_; }

 private:
  void Separate() {
    if (!fresh_) text_ += ',';
    fresh_ = false;
  }
  // What is no ASCII is passed on as it is; names of interfaces and messages of the C library are UTF-8 or ASCII.
  void Escape(char c) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      text_ += code;
    } else {
      text_ += c;
    }
  }

  std::string text_;
  bool fresh_ = true;  // nothing stands before the next value in its object or array
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_JSON_H_
