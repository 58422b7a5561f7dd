// libjpeg reports an error by calling a function that must not return. libjpeg
// is C, so the function uses longjmp(). The frames that it skips contain no C++
// objects.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs FILE and size_t to be declared before it is included.
#include <jerror.h>
#include <jpeglib.h>

#include "data/jpeg_files.h"

namespace resnet {
namespace {

struct JpegError {
  jpeg_error_mgr base;  // must be first: libjpeg passes a pointer to it
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
  bool unsupported;
};

JpegError* Of(j_common_ptr codec) {
  return reinterpret_cast<JpegError*>(codec->err);
}

[[noreturn]] void Fail(j_common_ptr codec) {
  JpegError* error = Of(codec);
  error->base.format_message(codec, error->text);
  // For example CMYK: nothing is damaged, but libjpeg cannot convert it to RGB.
  error->unsupported = error->base.msg_code == JERR_CONVERSION_NOTIMPL;
  std::longjmp(error->jump, 1);
}

// If a file ends early or its data are damaged, libjpeg only warns and invents
// the rest of the picture. Training with such a picture would be silently
// wrong.
void Warn(j_common_ptr codec, int level) {
  if (level >= 0) return;  // a trace message
  JpegError* error = Of(codec);
  ++error->base.num_warnings;
  // All other warnings, such as unexpected bytes between segments, do not
  // affect the picture.
  int code = error->base.msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
      code == JWRN_HUFF_BAD_CODE) {
    Fail(codec);
  }
}

void Prepare(JpegError* error) {
  jpeg_std_error(&error->base);
  error->base.error_exit = &Fail;
  error->base.emit_message = &Warn;
  error->text[0] = '\0';
  error->unsupported = false;
}

// Both functions return false after a jump, with error->text set. `make_room`
// is called once the size is known and returns the memory for the rows.
bool Decode(std::span<const uint8_t> bytes, JpegError* error,
            uint8_t* (*make_room)(void* image, int width, int height),
            void* image) {
  jpeg_decompress_struct codec;
  codec.err = &error->base;
  if (setjmp(error->jump)) {
    jpeg_destroy_decompress(&codec);
    return false;
  }
  jpeg_create_decompress(&codec);
  jpeg_mem_src(&codec, bytes.data(), bytes.size());
  jpeg_read_header(&codec, TRUE);
  codec.out_color_space = JCS_RGB;
  jpeg_start_decompress(&codec);
  uint8_t* out = make_room(image, static_cast<int>(codec.output_width),
                           static_cast<int>(codec.output_height));
  while (codec.output_scanline < codec.output_height) {
    JSAMPROW row = out + static_cast<size_t>(codec.output_scanline) *
                             codec.output_width * 3;
    jpeg_read_scanlines(&codec, &row, 1);
  }
  jpeg_finish_decompress(&codec);
  jpeg_destroy_decompress(&codec);
  return true;
}

bool Encode(const Image& image, int quality, JpegError* error,
            unsigned char** bytes, unsigned long* size) {
  jpeg_compress_struct codec;
  codec.err = &error->base;
  if (setjmp(error->jump)) {
    jpeg_destroy_compress(&codec);
    return false;
  }
  jpeg_create_compress(&codec);
  jpeg_mem_dest(&codec, bytes, size);
  codec.image_width = static_cast<JDIMENSION>(image.width);
  codec.image_height = static_cast<JDIMENSION>(image.height);
  codec.input_components = 3;
  codec.in_color_space = JCS_RGB;
  jpeg_set_defaults(&codec);
  // TRUE keeps the quantization tables within the 8 bits of baseline JPEG.
  jpeg_set_quality(&codec, quality, TRUE);
  jpeg_start_compress(&codec, TRUE);
  while (codec.next_scanline < codec.image_height) {
    JSAMPROW row =
        const_cast<uint8_t*>(image.Row(static_cast<int>(codec.next_scanline)));
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  return true;
}

uint8_t* MakeRoom(void* image, int width, int height) {
  Image& out = *static_cast<Image*>(image);
  out.width = width;
  out.height = height;
  out.pixels.resize(static_cast<size_t>(width) * height * 3);
  return out.pixels.data();
}

}  // namespace

absl::StatusOr<Image> DecodeJpeg(std::span<const uint8_t> bytes,
                                 const std::string& what) {
  JpegError error;
  Prepare(&error);
  Image image;
  if (Decode(bytes, &error, &MakeRoom, &image)) return image;
  std::string message =
      "cannot decode " + what + " as JPEG: " + error.text +
      (error.unsupported ? "; convert it to RGB" : "; replace or remove it");
  if (error.unsupported) return absl::UnimplementedError(message);
  return absl::DataLossError(message);
}

absl::StatusOr<std::vector<uint8_t>> EncodeJpeg(const Image& image,
                                                int quality) {
  JpegError error;
  Prepare(&error);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  bool made = Encode(image, quality, &error, &bytes, &size);
  std::vector<uint8_t> out;
  if (made) out.assign(bytes, bytes + size);
  // jpeg_mem_dest() allocates with malloc(), possibly even before an error.
  std::free(bytes);
  if (!made) {
    return absl::InternalError(std::string("cannot encode a picture: ") +
                               error.text);
  }
  return out;
}

}  // namespace resnet
